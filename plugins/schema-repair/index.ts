import * as v from "valibot";
import { definePlugin, type LogLevel, type Tool } from "../../src/plugin/plugin.ts";
import { printName } from "./notes.ts";
import { repair } from "./repair.ts";

/*
 * One tool with a schema that a model's provider refuses makes it refuse every request that lists the tool, and so all tools
 * of that person. Such schemas are repaired where they then accept no less than before; tools whose schema cannot be
 * repaired are not shown. What was done is logged once.
 */

const options = v.strictObject({
  /** What becomes of tools whose schema cannot be repaired. */
  unrepairable: v.optional(v.picklist(["hide", "show"], `"hide" or "show"`), "hide"),
});

/** As many lines are remembered, so that servers that list something new each time do not fill the memory. */
const MAX_LINES = 10_000;
/** As many tools are named in a line. */
const MAX_NAMES = 20;

export default definePlugin<v.InferOutput<typeof options>>({
  name: "schema-repair",
  options,
  whenBroken: "pass",
  setup({ unrepairable }, host) {
    const told = new Set<string>();
    /** Logs what was done to tools; those to which the same was done together. */
    const tell = (server: string, what: string, { names, level }: Remark): void => {
      const fresh = names.filter((name) => !told.has(`${server}\0${name}\0${what}`));
      if (fresh.length === 0) return;
      if (told.size > MAX_LINES) told.clear();
      for (const name of fresh) told.add(`${server}\0${name}\0${what}`);
      const list = fresh.slice(0, MAX_NAMES).map((name) => `"${printName(name)}"`);
      if (fresh.length > MAX_NAMES) list.push(`${fresh.length - MAX_NAMES} more`);
      const tools = `tool${fresh.length > 1 ? "s" : ""} ${list.join(", ")}`;
      host.log(level, `Server "${server}", ${tools}: ${what}.`);
    };
    return {
      list(items, server) {
        const remarks = new Map<string, Remark>();
        const shown = items.flatMap((given) => {
          const { tool, done, isMinor } = repairTool(given);
          const isHidden = tool === undefined && unrepairable === "hide";
          const fate = isHidden ? "not shown, as " : tool === undefined ? "shown, although " : "";
          const remark = remarks.get(fate + done) ?? {
            names: [],
            level: isMinor ? "info" : "warn",
          };
          if (done !== "") remarks.set(fate + done, remark);
          remark.names.push(given.name);
          return isHidden ? [] : [tool ?? given];
        });
        for (const [what, remark] of remarks) tell(server, what, remark);
        return shown;
      },
    };
  },
});

interface Remark {
  readonly names: string[];
  readonly level: LogLevel;
}

interface RepairedTool {
  /** The same object if there was nothing to do; undefined if nothing can be done. */
  readonly tool: Tool | undefined;
  /** What was done, or why nothing can be; empty if there was nothing to do. */
  readonly done: string;
  /** Whether it is not worth a warning. */
  readonly isMinor: boolean;
}

function repairTool(tool: Tool): RepairedTool {
  const { description, inputSchema, outputSchema } = tool;
  const input = repair(inputSchema, "arguments");
  if (input.kind === "hopeless") {
    const done = `its inputSchema cannot be repaired: ${input.fault}`;
    return { tool: undefined, done, isMinor: false };
  }
  const output = outputSchema === undefined ? undefined : repair(outputSchema, "results");
  const remarks: string[] = [];
  const changes: Record<string, unknown> = {};
  let isMinor = true;
  if (input.kind === "repaired") {
    remarks.push(`its inputSchema was repaired: ${input.done}`);
    changes["inputSchema"] = input.schema;
    const texts = typeof description === "string" ? [description, input.text] : [input.text];
    if (input.text !== "")
      changes["description"] = texts.filter((text) => text !== "").join("\n\n");
    isMinor &&= input.isMinor;
  }
  if (output?.kind === "repaired") {
    remarks.push(`its outputSchema was repaired: ${output.done}`);
    changes["outputSchema"] = output.schema;
    isMinor &&= output.isMinor;
  }
  // Results can do without: they may still be structured, only nothing is promised of them.
  const isDropped = output?.kind === "hopeless";
  if (isDropped) remarks.push(`its outputSchema was left out: ${output.fault}`);
  const done = remarks.join("; ");
  if (done === "") return { tool, done, isMinor };
  const { outputSchema: _, ...rest } = { ...tool, ...changes };
  return isDropped
    ? { tool: rest, done, isMinor: false }
    : { tool: { ...tool, ...changes }, done, isMinor };
}
