import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";

/** One error of each kind that has a JSON-RPC code of its own. */
const CODES = (
  "hubLoop hubNotRunning accessDenied callTimeout messageTooLarge pluginFailed notAsked notApproved notRecorded " +
  "modelFailed agentInvalid agentLoop unauthorized notTrusted digestMismatch notIdentified cancelled"
).split(" ");

describe("the table of errors", () => {
  it("gives errors of different kinds different JSON-RPC codes", () => {
    const numbers = CODES.map((code) => {
      assert.ok(HubError.isCode(code), code);
      return new HubError(code, "").toRpc().code;
    });
    assert.equal(new Set(numbers).size, numbers.length);
  });
});
