import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { PLUGIN_REQUIREMENTS, type PluginUnderTest } from "../contract/plugin.ts";
import { FAULTS } from "../fixtures/plugin/faulty.ts";

const folder = fileURLToPath(new URL("../fixtures/plugin", import.meta.url));

/** A fault, the first words of the requirement that finds it, and a pattern of the message. */
const FAULTS_BY_REQUIREMENT: readonly (readonly [fault: string, demand: string, says: RegExp])[] = [
  ["throws in its setup", "can be loaded", /failed in its setup: not today/],
  ["has a part that there is not", "can be loaded", /returned "calls", which is no part/],
  ["throws in its dispose", "can be set up and ended", /not today/],
  ["never ends its dispose", "can be set up and ended", /dispose/],
  ["changes what it is given", "makes the same", /read.?only|not extensible|object that is not/i],
  ["lists something else each time", "makes the same", /another list from the same one/],
  ["expects descriptions", "makes the same", /null/],
  ["lists a tool twice", "makes the same", /two tools of one name/],
  ["lists what is no tool", "makes the same", /no tool with a name/],
  [
    "adds a tool that nobody answers",
    "answers the calls",
    /asked for a tool that it does not have/,
  ],
  ["expects schemas", "looks at any tool", /null|undefined/],
  ["writes results anew", "passes arguments and results", /the client got/],
  ["writes arguments anew", "passes arguments and results", /the server got/],
  ["hides errors", "leaves errors", /"text":"x"/],
  ["expects content", "copes with any result", /Plugin "faulty" failed/],
  ["expects a path", "copes with any arguments", /Plugin "faulty" failed/],
  ["hides why there is no answer", "passes on why", /it did not work/],
  ["gives up after one failure", "bears that the server dies", /the call after that got/],
  ["holds what is cancelled", "lets go of calls that are cancelled", /holds \d+ calls/],
  ["tries again what is cancelled", "lets go of calls that are", /next\(\) was called \d+/],
  ["makes calls wait for the one before", "lets go of calls that are cancelled", /holds \d+ calls/],
  ["gives calls the answers of others", "answers each of 100", /call \d+ got/],
  ["makes one of calls that are alike", "does not let the end", /the second call got/],
  ["keeps answers for all of its kind", "shares nothing", /asked its server for something else/],
  ["closes what belongs to all of its kind", "shares nothing", /since the second has ended got/],
  ["throws at events", "bears events", /failed: s__plain/],
  ["rejects at events", "bears events", /failed: late/],
  ["holds what is cancelled", "lets go of calls that run when", /holds \d+ calls/],
  ["has every secret", "gives the secrets", /has a value/],
  ["has what all objects have", "gives the secrets", /__proto__ has a value/],
  ["has a server that is silent", "has servers", /ping/],
  ["has a server that fails", "has servers", /own in the hub/],
  ["writes for everybody to read", "keeps what it writes", /0600[^]*plugins\/faulty\/calls/],
  ["talks on stdout", "writes nothing to stdout", /stdout belongs to the protocol/],
  ["leaves a timer", "writes nothing to stdout", /keeps it running/],
  ["leaves a listener", "writes nothing to stdout", /listeners for SIGTERM/],
  ["changes the variables", "writes nothing to stdout", /the variables/],
  ["throws where nobody can catch it", "writes nothing to stdout", /nobody hears me/],
];

/** What these do not do they never do: it is waited for only so long, in ms. */
const NEVER_DONE = [
  "holds what is cancelled",
  "makes calls wait for the one before",
  "has a server that is silent",
  "leaves a timer",
];
const PATIENCE = 500;

/** Checks that the contract suite finds the fault and describes it. */
async function refuse(subject: PluginUnderTest, demand: string, says: RegExp): Promise<void> {
  const [found, ...rest] = PLUGIN_REQUIREMENTS.filter((one) => one.sentence.startsWith(demand));
  assert.ok(found && rest.length === 0, demand);
  await assert.rejects(found.check(subject), { message: says });
}

describe("the contract of plugins finds one that", () => {
  for (const [fault, demand, says] of FAULTS_BY_REQUIREMENT) {
    it(`${fault} (${demand} …)`, () => {
      const patience = NEVER_DONE.includes(fault) && { patience: PATIENCE };
      const subject = { use: "./faulty.ts", folder, options: { fault }, ...patience };
      return refuse(subject, demand, says);
    });
  }

  it("tells its secrets", () => {
    const secrets = { vault: { token: "hunter2" } };
    const options = { fault: "tells its secrets" };
    const subject = { use: "./faulty.ts", folder, options, secrets };
    return refuse(subject, "gives the secrets", /tells a value/);
  });

  for (const [what, use, demand, says] of [
    ["is not there", "absent", "can be loaded", /absent\.ts/],
    ["has no usable name", "invalid-name", "can be loaded", /"no name": expected letters/],
    ["takes unknown options", "unknown-options", "refuses wrong", /it took {"no-such-option"/],
    [
      "checks options late",
      "options-checked-in-setup",
      "refuses wrong",
      /it took {"no-such-option"/,
    ],
  ] as const) {
    it(what, () => refuse({ use: `./${use}.ts`, folder }, demand, says));
  }

  it("does anything of what the fixture can do wrong, and each demand finds something", () => {
    const faults = FAULTS_BY_REQUIREMENT.map(([fault]) => fault);
    const found = new Set(["none", "tells its secrets", ...faults]);
    assert.deepEqual([...new Set(Object.keys(FAULTS)).difference(found)], []);
    const useful = ["refuses wrong options", ...FAULTS_BY_REQUIREMENT.map(([, demand]) => demand)];
    for (const { sentence } of PLUGIN_REQUIREMENTS) {
      assert.ok(
        useful.some((words) => sentence.startsWith(words)),
        sentence,
      );
    }
  });
});
