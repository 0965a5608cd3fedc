import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { OpenQuestions } from "../../src/agent/question-pauses.ts";
import { AgentChain } from "../../src/agent/run-chain.ts";
import { connectInside } from "../../src/host/hub-toolbox.ts";
import {
  callRequest,
  initialize,
  ScriptedServer,
  setUpHub,
  stdioSpecOf,
} from "../fixtures/memory-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";

describe("agents that are connected to a hub in the same process", () => {
  it("have the time of their runs stand still while their calls wait for approval, and no others do", async () => {
    const a = new ScriptedServer("x");
    const { hub, client } = setUpHub({ a });
    hub.approvals.watch();
    hub.add(stdioSpecOf("a", { approval: "auto" }), "manifest");
    await initialize(client);
    const signal = new AbortController().signal;
    const questions = new OpenQuestions();
    const { toolbox, client: own } = await connectInside(hub, signal, undefined, questions);
    await toolbox.tools(signal);
    const seen: boolean[] = [];
    const unwatch = questions.watchPauses((isPaused) => void seen.push(isPaused));
    const untilAsked = async (): Promise<string> => {
      for (;;) {
        const [question] = hub.approvals.prompts;
        if (question !== undefined) return question.id;
        await turn();
      }
    };
    const caller = { name: "main", approval: undefined, fallback: undefined };
    const calling = toolbox.call("a__x", "{}", { signal, chain: AgentChain.none, agent: caller });
    const id = await untilAsked();
    assert.deepEqual(seen, [true]);
    hub.approvals.answer(id, "once", "dashboard");
    assert.equal((await calling).isError, false);
    assert.deepEqual(seen, [true, false]);
    client.send(callRequest(1, "a__x"));
    hub.approvals.answer(await untilAsked(), "once", "dashboard");
    assert.deepEqual(seen, [true, false]);
    void toolbox
      .call("a__x", "{}", { signal, chain: AgentChain.none, agent: caller })
      .catch(() => {});
    await untilAsked();
    await own.close();
    for (let i = 0; i < 5; i++) await turn();
    assert.deepEqual(seen, [true, false, true, false]);
    unwatch();
  });
});
