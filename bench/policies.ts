import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Entrant } from "./contest.ts";
import type { HubSetup, Stage } from "./contestants.ts";
import { ECHO, entrantOf } from "./race.ts";

/**
 * The work that a hub does for calls in addition to forwarding them: none, renaming, filtering, logging (`heard`), or
 * a plugin.
 */
export const POLICIES = ["none", "renamed", "filtered", "heard", "plugged"] as const;
export type Policy = (typeof POLICIES)[number];

const PASSING = `export default { name: "passing", setup: () => ({ call: (next) => (call) => next(call) }) };\n`;

/** One echo server behind a hub with the given policy. @returns undefined if the hub has not been built */
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
