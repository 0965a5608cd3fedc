import * as v from "valibot";
import { definePlugin, type LogLevel, type Tool } from "../../src/plugin/plugin.ts";
import { sanitizeName } from "./notes.ts";
import { repair } from "./repair.ts";

/*
 * Repairs tools' JSON Schemas. If a model's provider rejects the schema of one tool, it rejects every request that
 * lists the tool, so the user can use no tool at all. A repaired schema accepts every value that the original
 * accepted. Tools whose schema cannot be repaired are hidden. Each change is logged once.
 */

const options = v.strictObject({
  /** Whether tools with a schema that cannot be repaired are hidden. */
  unrepairable: v.optional(v.picklist(["hide", "show"], `"hide" or "show"`), "hide"),
});

/**
 * Maximum number of changes that are remembered in order to log each only once. Without a limit, servers whose tools
 * keep changing would fill the memory.
 */
const MAX_REMEMBERED = 10_000;
/** Maximum number of tool names in a log line. */
const MAX_NAMES = 20;

export default definePlugin<v.InferOutput<typeof options>>({
  name: "schema-repair",
  options,
  whenBroken: "pass",
  setup({ unrepairable }, host) {
    const logged = new Set<string>();
    /** Logs a change, once per tool; tools with the same change share a line. */
    const logOnce = (server: string, what: string, { names, level }: LoggedChange): void => {
      const fresh = names.filter((name) => !logged.has(`${server}\0${name}\0${what}`));
      if (fresh.length === 0) return;
      if (logged.size > MAX_REMEMBERED) logged.clear();
      for (const name of fresh) logged.add(`${server}\0${name}\0${what}`);
      const list = fresh.slice(0, MAX_NAMES).map((name) => `"${sanitizeName(name)}"`);
      if (fresh.length > MAX_NAMES) list.push(`${fresh.length - MAX_NAMES} more`);
      const tools = `tool${fresh.length > 1 ? "s" : ""} ${list.join(", ")}`;
      host.log(level, `Server "${server}", ${tools}: ${what}.`);
    };
    return {
      list(items, server) {
        const changes = new Map<string, LoggedChange>();
        const shown = items.flatMap((given) => {
          const { tool, done, isMinor } = repairTool(given);
          const isHidden = tool === undefined && unrepairable === "hide";
          const outcome = isHidden
            ? "not shown, as "
            : tool === undefined
              ? "shown, although "
              : "";
          const change = changes.get(outcome + done) ?? {
            names: [],
            level: isMinor ? "info" : "warn",
          };
          if (done !== "") changes.set(outcome + done, change);
          change.names.push(given.name);
          return isHidden ? [] : [tool ?? given];
        });
        for (const [what, change] of changes) logOnce(server, what, change);
        return shown;
      },
    };
  },
});

interface LoggedChange {
  readonly names: string[];
  readonly level: LogLevel;
}

interface RepairedTool {
  /** The repaired tool: the same object if nothing was changed, undefined if the tool cannot be repaired. */
  readonly tool: Tool | undefined;
  /** The changes, or why a repair is impossible; empty if nothing was changed. */
  readonly done: string;
  /** Whether the change is logged below warning level. */
  readonly isMinor: boolean;
}

function repairTool(tool: Tool): RepairedTool {
  const { description, inputSchema, outputSchema } = tool;
  const input = repair(inputSchema, "arguments");
  if (input.kind === "unrepairable") {
    const done = `its inputSchema cannot be repaired: ${input.fault}`;
    return { tool: undefined, done, isMinor: false };
  }
  const output = outputSchema === undefined ? undefined : repair(outputSchema, "results");
  const descriptions: string[] = [];
  const changes: Record<string, unknown> = {};
  let isMinor = true;
  if (input.kind === "repaired") {
    descriptions.push(`its inputSchema was repaired: ${input.done}`);
    changes["inputSchema"] = input.schema;
    const texts = typeof description === "string" ? [description, input.text] : [input.text];
    if (input.text !== "")
      changes["description"] = texts.filter((text) => text !== "").join("\n\n");
    isMinor &&= input.isMinor;
  }
  if (output?.kind === "repaired") {
    descriptions.push(`its outputSchema was repaired: ${output.done}`);
    changes["outputSchema"] = output.schema;
    isMinor &&= output.isMinor;
  }
  // An output schema is optional: a tool without one may still return structured results, so an output schema that
  // cannot be repaired is dropped.
  const isDropped = output?.kind === "unrepairable";
  if (isDropped) descriptions.push(`its outputSchema was left out: ${output.fault}`);
  const done = descriptions.join("; ");
  if (done === "") return { tool, done, isMinor };
  const { outputSchema: _, ...rest } = { ...tool, ...changes };
  return isDropped
    ? { tool: rest, done, isMinor: false }
    : { tool: { ...tool, ...changes }, done, isMinor };
}
