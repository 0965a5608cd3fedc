import assert from "node:assert/strict";
import type { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import { startReplay, recordingOf } from "../fixtures/recording.ts";

/** A message with this id. */
const message = (id: unknown, rest: string): string =>
  `{"jsonrpc":"2.0","id":${String(id)},${rest}}`;
const callOf = (id: unknown, params: string): string =>
  message(id, `"method":"tools/call","params":${params}`);
/** A call of the tool t without arguments. */
const T = (id: unknown): string => callOf(id, '{"name":"t"}');

/** A request and its answer as they are recorded, with an id of the hub's. */
function call(id: number, name: string, args: string, result: string, t = 0): [number, string][] {
  return [
    [t, `> ${callOf(id, `{"name":"${name}","arguments":${args}}`)}`],
    [t + 10, `< ${message(id, `"result":${result}`)}`],
  ];
}

function ask(id: unknown, name: string, args: string, meta = ""): string {
  return callOf(id, `{"arguments":${args},"name":"${name}"${meta}}`);
}

const PROGRESS = (token: string, n: number): string =>
  `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":${n}}}`;
const LOG =
  '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}';

/** A server that plays this recording to a client that sends these, until the last of them has an answer. */
async function play(recording: Buffer, ...requests: readonly string[]) {
  const setup = startReplay(recording);
  for (const request of requests) setup.client.send(request);
  const { id: last } = JSON.parse(requests.at(-1) ?? "") as { id: unknown };
  const answer = await setup.client.find(({ id, method }) => id === last && method === undefined);
  return { ...setup, answer };
}

describe("a server that is played", () => {
  it("answers with the recorded result, to the byte, under the id of whoever asks", async () => {
    const odd = '{ "a":1.0,"a":12345678901234567890,"b":"\\u00fc" }';
    const asked = ask('"mine"', "t", '{ "x":[1,{"z":3,"y":2}]}', ',"_meta":{"traceparent":"x"}');
    const recording = recordingOf(...call(5, "t", '{"x":[1,{"y":2,"z":3}]}', odd));
    const { client, reports } = await play(recording, asked);
    assert.ok(client.received.join().includes(`"result":${odd}`), client.received.join());
    assert.deepEqual(reports, []);
  });

  it("answers equal requests in the order in which they were, and then with the last again", async () => {
    const second = call(2, "t", "{}", '{"n":2}', 20);
    const recording = recordingOf(...call(1, "t", "{}", '{"n":1}'), ...second);
    const requests = [1, 2, 3, 4].map((id) => ask(id, "t", "{}"));
    const { client, report: review, reports: reported } = await play(recording, ...requests);
    const results = client.messages.map(({ result }) => result?.["n"]);
    assert.deepEqual(results, [1, 2, 2, 2]);
    assert.equal(reported.length, 1);
    assert.match(reported[0] ?? "", /s: tools\/call of t was made more often .*line 4/);
    assert.ok(!review.hasDiverged);
  });

  it("says what it does between request and answer in order, with the token of whoever asks", async () => {
    const params = '{"name":"t","_meta":{"progressToken":7}}';
    const recording = recordingOf(
      [0, `> ${callOf(7, params)}`],
      [0, `> ${callOf(8, '{"name":"other"}')}`],
      [1, `< ${PROGRESS("7", 1)}`],
      [2, `< ${message(8, '"result":{}')}`],
      [3, `< ${LOG}`],
      [4, `< ${PROGRESS("7", 2)}`],
      [5, `< ${message(7, '"result":{}')}`],
    );
    const asked = callOf(1, '{"name":"t","_meta":{"progressToken":"ü"}}');
    const { client } = await play(recording, asked);
    assert.deepEqual(client.received.slice(0, 3), [PROGRESS('"ü"', 1), LOG, PROGRESS('"ü"', 2)]);
    const { client: again } = await play(recording, T(1));
    assert.deepEqual(again.received.slice(0, -1), [LOG], "no progress without a token");
  });

  it("takes as long as it took also in many steps that are shorter than a timer", async () => {
    const params = '{"name":"t","_meta":{"progressToken":1}}';
    const steps = Array.from({ length: 100 }, (_, n): [number, string] => [
      0.4 * (n + 1),
      `< ${PROGRESS("1", n)}`,
    ]);
    const end: [number, string] = [40.4, `< ${message(1, '"result":{}')}`];
    const recording = recordingOf([0, `> ${callOf(1, params)}`], ...steps, end);
    const clock = new VirtualClock();
    const { client } = startReplay(recording, { clock, speed: 1 });
    client.send(callOf(1, params));
    await turn();
    await clock.advanceAsync(20);
    const { length } = client.received;
    assert.ok(length >= 49 && length <= 51, `half of it: ${length}`);
    await clock.advanceAsync(21);
    assert.equal(client.received.length, 101);
  });

  it("takes as long as it took, or a part of that", async () => {
    const recording = recordingOf(
      [100, `> ${T(1)}`],
      [300, `< ${LOG}`],
      [1100, `< ${message(1, '"result":{}')}`],
    );
    for (const [speed, first, second] of [
      [1, 200, 800],
      [4, 50, 200],
    ] as const) {
      const clock = new VirtualClock();
      const { client } = startReplay(recording, { clock, speed });
      client.send(T(1));
      for (const [at, count] of [
        [first - 1, 0],
        [1, 1],
        [second - 1, 1],
        [1, 2],
      ] as const) {
        await clock.advanceAsync(at);
        assert.equal(client.received.length, count);
      }
    }
  });

  it("asks what it asked, and goes on when it has an answer, whatever that is", async () => {
    const recording = recordingOf(
      [0, `> ${T(1)}`],
      [1, `< ${message('"q"', '"method":"elicitation/create","params":{"message":"?"}')}`],
      [9, `> ${message('"q"', '"result":{"action":"accept","content":{"a":1}}')}`],
      [10, `< ${message(1, '"result":{"done":true}')}`],
    );
    for (const content of ['{"a":1}', '{"a":2}']) {
      const { client, report } = startReplay(recording);
      client.send(T(4));
      const question = await client.find(({ method }) => method === "elicitation/create");
      assert.deepEqual(question.params, { message: "?" });
      await turn();
      assert.equal(client.received.length, 1, "it waits");
      const id = JSON.stringify(question.id);
      client.send(`{"jsonrpc":"2.0","id":${id},"result":{"action":"accept","content":${content}}}`);
      const { result } = await client.find(({ id: of, method }) => of === 4 && !method);
      assert.deepEqual(result, { done: true });
      assert.ok(!report.hasDiverged);
    }
  });

  it("does not know the greeting of the other era, as itself would not, and that is no divergence", async () => {
    const greet = (id: number, method: string): string =>
      message(id, `"method":"${method}","params":{}`);
    for (const [known, other] of [
      ["initialize", "server/discover"],
      ["server/discover", "initialize"],
    ] as const) {
      const answer = `< ${message(1, '"result":{}')}`;
      const recording = recordingOf([0, `> ${greet(1, known)}`], [1, answer]);
      const played = await play(recording, greet(1, other), greet(2, known));
      const { client, report: review } = played;
      const [refused, met] = client.messages;
      assert.equal(refused?.error?.code, -32601);
      assert.deepEqual(met?.result, {});
      assert.ok(!review.hasDiverged);
    }
    const recording = recordingOf(...call(1, "t", "{}", "{}"));
    const { answer, report: review } = await play(recording, greet(1, "initialize"));
    assert.equal(answer.error?.code, -31009, "nothing is known of its greeting");
    assert.ok(review.hasDiverged);
  });

  it("says nothing more for a request that is taken back", async () => {
    const clock = new VirtualClock();
    const { client } = startReplay(recordingOf(...call(1, "t", "{}", "{}")), { clock, speed: 1 });
    client.send(ask("1", "t", "{}"));
    await turn();
    client.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}');
    await clock.advanceAsync(1000);
    assert.deepEqual(client.received, []);
    assert.deepEqual(clock.pendingDelays, []);
  });

  it("answers nothing that was taken back when it was recorded, on a pipe or over HTTP", async () => {
    const request = `> ${T(1)}`;
    for (const taken of [
      '> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
      '! "event":"abandoned","id":1',
    ]) {
      const other = call(2, "other", "{}", "{}", 2);
      const recording = recordingOf([0, request], [1, taken], ...other);
      const { client } = await play(recording, T(4), ask(5, "other", "{}"));
      assert.equal(client.received.length, 1);
    }
  });

  it("ends where it ended", async () => {
    const killed = '! "event":"closed","by":"peer","cause":"It was killed."';
    const { client, endedByServer: over } = startReplay(recordingOf([0, `> ${T(1)}`], [5, killed]));
    client.send(T(4));
    assert.equal(await over, true);
    await client.until(() => client.isClosed);
    assert.deepEqual(client.received, []);
  });

  it("says of a request whose answer is not in the recording why that is so", async () => {
    const request = `> ${T(1)}`;
    for (const [more, why] of [
      [[], /line 2 has no answer to give: the recording ends before its answer/],
      [[[1, '! "way":"received","cut":{"size":9,"kind":"response","id":1}']], /too large/],
      [[[1, '! "event":"lost","id":1,"cause":"It was lost."']], /It was lost/],
      [[[1, '! "event":"oversized","size":9,"kind":"response","id":1']], /too large/],
    ] as const) {
      const { error } = (await play(recordingOf([0, request], ...more), T(4))).answer;
      assert.equal(error?.data?.["code"], "notRecorded");
      assert.match(error.message, why);
    }
  });

  it("answers a ping whether one was recorded or not", async () => {
    const { answer, report: review } = await play(recordingOf(), message(1, '"method":"ping"'));
    assert.deepEqual(answer.result, {});
    assert.ok(!review.hasDiverged);
  });

  it("gives what it says to a subscription the id of whoever listens", async () => {
    const key = "io.modelcontextprotocol/subscriptionId";
    const received = (id: string): string =>
      `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"${key}":${id}}}}`;
    const listen = (id: unknown, params: string): string =>
      message(id, `"method":"subscriptions/listen","params":${params}`);
    const { client } = startReplay(
      recordingOf([0, `> ${listen(3, '{"a":1}')}`], ...call(4, "t", "{}", "{}"), [
        9,
        `< ${received("3")}`,
      ]),
    );
    client.send(listen('"L"', '{"b":2}'));
    await client.until(() => client.received.length === 1);
    assert.deepEqual(client.received, [received('"L"')]);
  });
});

describe("a client that does something else", () => {
  const recording = recordingOf(
    ...call(1, "read", '{"path":"/a","deep":{"list":[1,2]}}', '{"n":1}'),
    ...call(2, "write", "{}", '{"n":2}', 20),
    ...call(3, "third", '{"token":"[redacted]","n":1}', '{"n":3}', 40),
  );

  it("is told what is nearest to its request, by its line and the paths that differ", async () => {
    const asked = ask(1, "read", '{"path":"/b","deep":{"list":[1,3]}}');
    const { answer, reports: reported, report: review } = await play(recording, asked);
    const { error } = answer;
    assert.equal(error?.code, -31009);
    assert.equal(error.data?.["line"], 2);
    assert.deepEqual(error.data["differences"], [
      { path: "arguments.deep.list[1]", recorded: "2", asked: "3" },
      { path: "arguments.path", recorded: '"/a"', asked: '"/b"' },
    ]);
    assert.match(reported[0] ?? "", /^diverged: s: tools\/call of read was not recorded: .*line 2/);
    assert.ok(review.hasDiverged);
  });

  it("has no secret of its shown", async () => {
    const asked = ask(1, "read", '{"path":"/a","deep":{"list":[1,2]},"api_key":"canary"}');
    const { client, reports: reported } = await play(recording, asked);
    assert.ok(!`${reported.join()}${client.received.join()}`.includes("canary"));
    assert.match(reported.join(), /arguments\.api_key nothing and not \[not shown\]/);
  });

  it("is answered where only what was taken out of the recording differs", async () => {
    const { client, report: review } = await play(
      recording,
      ...[1, 2].map((id) => ask(id, "third", '{"token":"canary","n":1}')),
      ask(3, "third", '{"token":"canary","n":2}'),
    );
    const results = client.messages.map(({ result, error }) => result?.["n"] ?? error?.code);
    assert.deepEqual(results, [3, 3, -31009]);
    assert.ok(review.hasDiverged);
  });

  it("may ask in another order than was recorded, and is told at the end how much it never asked", async () => {
    const recorded = startReplay(recording).matcher.neverRequested;
    const { reports, matcher } = await play(
      recording,
      ask(2, "third", '{"token":"","n":1}'),
      ask(3, "read", '{"path":"/a","deep":{"list":[1,2]}}'),
    );
    assert.deepEqual(reports, []);
    assert.equal(matcher.neverRequested, recorded - 2);
  });

  it("is told so often, and then only counted", async () => {
    const requests = Array.from({ length: 50 }, (_, i) => ask(i + 1, "none", "{}"));
    const { reports: reported, report: review, matcher } = await play(recording, ...requests);
    assert.equal(reported.length, 21);
    const summary = review.summary(matcher.neverRequested);
    assert.match(summary, /50 not recorded.* 3 recorded and never made/);
  });
});
