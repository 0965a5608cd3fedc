import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Entrant } from "./contest.ts";
import type { HubSetup, Stage } from "./contestants.ts";
import { ECHO, entrantOf } from "./race.ts";

/** What a hub does with calls beyond passing them on: nothing, other names, filters, lines in its log, a plugin. */
export const POLICIES = ["none", "renamed", "filtered", "heard", "plugged"] as const;
export type Policy = (typeof POLICIES)[number];

const PASSING = `export default { name: "passing", setup: () => ({ call: (next) => (call) => next(call) }) };\n`;

/** One echo server behind a hub with such a policy. @returns undefined if it has not been built */
export function policyOf(stage: Stage, policy: Policy): Entrant | undefined {
  const hub = stage.hub(1, ECHO, setupOf(stage, policy));
  const name = policy === "renamed" ? "mirror" : "echo";
  return entrantOf(hub && { peer: hub.peer, tool: `${hub.servers[0] ?? ""}__${name}` });
}

function setupOf(stage: Stage, policy: Policy): HubSetup {
  switch (policy) {
    case "none":
      return {};
    case "renamed":
      return { server: { tools: { rename: { echo: "mirror" } } } };
    case "filtered":
      return { server: { tools: { allow: ["e*"], deny: ["*_delete"] } } };
    case "heard":
      return { args: ["--log-level", "debug"] };
    case "plugged": {
      const use = join(stage.makeFolder("passing"), "passing.js");
      writeFileSync(use, PASSING);
      return { plugins: [{ use }] };
    }
  }
}
