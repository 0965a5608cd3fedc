import * as v from "valibot";
import { definePlugin, type Tool } from "../../src/plugin/plugin.ts";
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
    /** Logs what was done to which tools, those to which the same was done together. */
    const tell = (server: string, done: ReadonlyMap<string, readonly string[]>): void => {
      for (const [what, names] of done) {
        const fresh = names.filter((name) => !told.has(`${server}\0${name}\0${what}`));
        if (fresh.length === 0) continue;
        if (told.size > MAX_LINES) told.clear();
        for (const name of fresh) told.add(`${server}\0${name}\0${what}`);
        const more = fresh.length - MAX_NAMES;
        const list = fresh.slice(0, MAX_NAMES).map((name) => `"${printName(name)}"`);
        if (more > 0) list.push(`${more} more`);
        host.log(
          "warn",
          `Server "${server}", tool${fresh.length > 1 ? "s" : ""} ${list.join(", ")}: ${what}.`,
        );
      }
    };
    return {
      list(items, server) {
        const done = new Map<string, string[]>();
        const shown = items.flatMap((tool) => {
          const { tool: repaired, done: what, isHopeless } = repairTool(tool);
          const isHidden = isHopeless && unrepairable === "hide";
          if (what !== undefined) {
            const line = isHidden
              ? `not shown, as ${what}`
              : isHopeless
                ? `shown, although ${what}`
                : what;
            done.set(line, [...(done.get(line) ?? []), tool.name]);
          }
          return isHidden ? [] : [repaired];
        });
        tell(server, done);
        return shown;
      },
    };
  },
});

interface RepairedTool {
  /** The same object if there was nothing to do. */
  readonly tool: Tool;
  /** For people. */
  readonly done: string | undefined;
  /** Whether the schema of its arguments is still as bad as it was. */
  readonly isHopeless: boolean;
}

export function repairTool(tool: Tool): RepairedTool {
  const done: string[] = [];
  const changes: Record<string, unknown> = {};
  const input = repair(tool.inputSchema, "arguments");
  if (input.kind === "repaired") {
    done.push(`its inputSchema was repaired: ${input.done}`);
    changes["inputSchema"] = input.schema;
    const parts = [tool.description, input.text].filter((text) => (text ?? "") !== "");
    if (input.text !== "") changes["description"] = parts.join("\n\n");
  }
  const { outputSchema, ...rest } = tool;
  const output =
    outputSchema === undefined ? { kind: "fine" as const } : repair(outputSchema, "results");
  if (output.kind === "repaired") {
    done.push(`its outputSchema was repaired: ${output.done}`);
    changes["outputSchema"] = output.schema;
  }
  // Results can do without: they may still be structured, only nothing is promised of them.
  if (output.kind === "hopeless") done.push(`its outputSchema was left out: ${output.fault}`);
  if (input.kind === "hopeless") {
    return { tool, done: `its inputSchema cannot be repaired: ${input.fault}`, isHopeless: true };
  }
  if (done.length === 0) return { tool, done: undefined, isHopeless: false };
  const base = output.kind === "hopeless" ? rest : tool;
  return { tool: { ...base, ...changes }, done: done.join("; "), isHopeless: false };
}
