import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import {
  type AuthChallenge,
  NO_CREDENTIALS,
  type RequestCredentials,
} from "../../../src/transport/http/target.ts";
import { HttpRequester } from "../../../src/transport/http/request.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";

function open(getHeaders: RequestCredentials["getHeaders"]) {
  const challenges: AuthChallenge[] = [];
  const target = targetOf(new URL("https://mcp.example/mcp"), {
    secrets: ["a-secret-of-the-manifest"],
    credentials: { ...NO_CREDENTIALS, getHeaders },
  });
  const passage = new HttpRequester(
    target,
    (challenge) => void challenges.push(challenge),
    () => assert.fail("nothing is broken"),
  );
  return { passage, challenges };
}

describe("what the requests of a link bear", () => {
  it("is taken out of what the server says of it, and so is what they bore before", async () => {
    const tokens = ["token-number-one", "token-number-two"];
    const { passage } = open(() => ({ Authorization: `Bearer ${tokens.shift()}` }));
    await passage.getCredentialLines();
    await passage.getCredentialLines();
    const text = "Bearer token-number-one, token-number-two and a-secret-of-the-manifest are wrong";
    const { message } = passage.error("serverRefused", text);
    assert.doesNotMatch(message, /number|manifest/);
  });

  it("has to be got first if there is none, before the server is asked for anything", async () => {
    const none = new HubError("unauthorized", "Nobody has logged in.");
    const { passage, challenges } = open(() => Promise.reject(none));
    await assert.rejects(async () => passage.getCredentialLines(), none);
    await assert.rejects(async () => passage.getCredentialLines(), none);
    assert.deepEqual(challenges, [{ status: 401, header: undefined }]);
  });

  it("that cannot be got now is no reason to log in", async () => {
    const gone = new HubError("unreachable", "The authorization server is not there.");
    const { passage, challenges } = open(() => Promise.reject(gone));
    await assert.rejects(async () => passage.getCredentialLines(), gone);
    assert.deepEqual(challenges, []);
  });
});
