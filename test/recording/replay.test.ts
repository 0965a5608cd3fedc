import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import { startReplay, recordingOf } from "../fixtures/recording.ts";

/** A request and its answer as they are recorded, with an id of the hub's. */
function call(id: number, name: string, args: string, result: string, t = 0): [number, string][] {
  const params = `{"name":"${name}","arguments":${args}}`;
  return [
    [t, `> {"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`],
    [t + 10, `< {"jsonrpc":"2.0","id":${id},"result":${result}}`],
  ];
}

function ask(id: string, name: string, args: string, meta = ""): string {
  const params = `{"arguments":${args},"name":"${name}"${meta}}`;
  return `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`;
}

const PROGRESS = (token: string, n: number): string =>
  `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":${n}}}`;

describe("a server that is played", () => {
  it("answers with the recorded result, to the byte, under the id of whoever asks", async () => {
    const odd = '{ "a":1.0,"a":12345678901234567890,"b":"\\u00fc" }';
    const { client, reports: reported } = startReplay(
      recordingOf(...call(5, "t", '{"x":[1,{"y":2,"z":3}]}', odd)),
    );
    client.send(ask('"mine"', "t", '{ "x":[1,{"z":3,"y":2}]}', ',"_meta":{"traceparent":"x"}'));
    await client.find(({ id }) => id === "mine");
    assert.ok(client.received.join().includes(`"result":${odd}`), client.received.join());
    assert.deepEqual(reported, []);
  });

  it("answers equal requests in the order in which they were, and then with the last again", async () => {
    const recording = recordingOf(
      ...call(1, "t", "{}", '{"n":1}'),
      ...call(2, "t", "{}", '{"n":2}', 20),
    );
    const { client, report: review, reports: reported } = startReplay(recording);
    for (const id of [1, 2, 3, 4]) client.send(ask(String(id), "t", "{}"));
    await client.find(({ id }) => id === 4);
    assert.deepEqual(
      client.messages.map(({ result }) => result?.["n"]),
      [1, 2, 2, 2],
    );
    assert.equal(reported.length, 1);
    assert.match(reported[0] ?? "", /s: tools\/call of t was made more often .*line 4/);
    assert.ok(!review.hasDiverged);
  });

  it("says what it does between request and answer in order, with the token of whoever asks", async () => {
    const log =
      '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}';
    const params = '{"name":"t","_meta":{"progressToken":7}}';
    const recording = recordingOf(
      [0, `> {"jsonrpc":"2.0","id":7,"method":"tools/call","params":${params}}`],
      [0, '> {"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"other"}}'],
      [1, `< ${PROGRESS("7", 1)}`],
      [2, '< {"jsonrpc":"2.0","id":8,"result":{}}'],
      [3, `< ${log}`],
      [4, `< ${PROGRESS("7", 2)}`],
      [5, '< {"jsonrpc":"2.0","id":7,"result":{}}'],
    );
    const { client } = startReplay(recording);
    client.send(
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"ü"}}}',
    );
    await client.find(({ id }) => id === 1);
    assert.deepEqual(client.received.slice(0, 3), [PROGRESS('"ü"', 1), log, PROGRESS('"ü"', 2)]);
    const again = startReplay(recording).client;
    again.send('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}');
    await again.find(({ id }) => id === 1);
    assert.deepEqual(again.received.slice(0, -1), [log], "no progress without a token");
  });

  it("takes as long as it took also in many steps that are shorter than a timer", async () => {
    const meta = '"_meta":{"progressToken":1}';
    const recording = recordingOf(
      [0, `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",${meta}}}`],
      ...Array.from({ length: 100 }, (_, n): [number, string] => [
        0.4 * (n + 1),
        `< ${PROGRESS("1", n)}`,
      ]),
      [40.4, '< {"jsonrpc":"2.0","id":1,"result":{}}'],
    );
    const clock = new VirtualClock();
    const { client } = startReplay(recording, { clock, speed: 1 });
    client.send(ask("1", "t", "{}", `,${meta}`).replace('"arguments":{},', ""));
    await turn();
    await clock.advanceAsync(20);
    const { length } = client.received;
    assert.ok(length >= 49 && length <= 51, `half of it: ${length}`);
    await clock.advanceAsync(21);
    assert.equal(client.received.length, 101);
  });

  it("takes as long as it took, or a part of that", async () => {
    const recording = recordingOf(
      [100, '> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'],
      [
        300,
        '< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}',
      ],
      [1100, '< {"jsonrpc":"2.0","id":1,"result":{}}'],
    );
    for (const [speed, first, second] of [
      [1, 200, 800],
      [4, 50, 200],
    ] as const) {
      const clock = new VirtualClock();
      const { client } = startReplay(recording, { clock, speed });
      client.send('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}');
      await clock.advanceAsync(first - 1);
      assert.equal(client.received.length, 0);
      await clock.advanceAsync(1);
      assert.equal(client.received.length, 1);
      await clock.advanceAsync(second - 1);
      assert.equal(client.received.length, 1);
      await clock.advanceAsync(1);
      assert.equal(client.received.length, 2);
    }
  });

  it("asks what it asked, and goes on when it has an answer, whatever that is", async () => {
    const recording = recordingOf(
      [0, '> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'],
      [1, '< {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?"}}'],
      [9, '> {"jsonrpc":"2.0","id":"q","result":{"action":"accept","content":{"a":1}}}'],
      [10, '< {"jsonrpc":"2.0","id":1,"result":{"done":true}}'],
    );
    for (const content of ['{"a":1}', '{"a":2}']) {
      const { client, report } = startReplay(recording);
      client.send('{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}');
      const question = await client.find(({ method }) => method === "elicitation/create");
      assert.deepEqual(question.params, { message: "?" });
      await turn();
      assert.equal(client.received.length, 1, "it waits");
      const id = JSON.stringify(question.id);
      client.send(`{"jsonrpc":"2.0","id":${id},"result":{"action":"accept","content":${content}}}`);
      const { result } = await client.find((message) => message.id === 4 && !message.method);
      assert.deepEqual(result, { done: true });
      assert.ok(!report.hasDiverged);
    }
  });

  it("does not know the greeting of the other era, as itself would not, and that is no divergence", async () => {
    const greet = (id: number, method: string): string =>
      `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":{}}`;
    for (const [known, other] of [
      ["initialize", "server/discover"],
      ["server/discover", "initialize"],
    ] as const) {
      const recording = recordingOf(
        [0, `> ${greet(1, known)}`],
        [1, '< {"jsonrpc":"2.0","id":1,"result":{}}'],
      );
      const { client, report: review } = startReplay(recording);
      client.send(greet(1, other));
      client.send(greet(2, known));
      await client.find(({ id }) => id === 2);
      const [refused, met] = client.messages;
      assert.equal(refused?.error?.code, -32601);
      assert.deepEqual(met?.result, {});
      assert.ok(!review.hasDiverged);
    }
    const { client, report: review } = startReplay(recordingOf(...call(1, "t", "{}", "{}")));
    client.send(greet(1, "initialize"));
    await client.find(({ id }) => id === 1);
    assert.equal(client.messages[0]?.error?.code, -31009, "nothing is known of its greeting");
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
    const request = '> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}';
    const params = '{"requestId":1}';
    for (const taken of [
      `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":${params}}`,
      '! "event":"abandoned","id":1',
    ]) {
      const { client } = startReplay(
        recordingOf([0, request], [1, taken], ...call(2, "other", "{}", "{}", 2)),
      );
      client.send('{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}');
      client.send(ask("5", "other", "{}"));
      await client.find(({ id }) => id === 5);
      assert.equal(client.received.length, 1);
    }
  });

  it("ends where it ended", async () => {
    const { client, endedByServer: over } = startReplay(
      recordingOf(
        [0, '> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'],
        [5, '! "event":"closed","by":"peer","cause":"It was killed."'],
      ),
    );
    client.send('{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}');
    assert.equal(await over, true);
    await client.until(() => client.isClosed);
    assert.deepEqual(client.received, []);
  });

  it("says of a request whose answer is not in the recording why that is so", async () => {
    const request = '> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}';
    for (const [more, why] of [
      [[], /line 2 has no answer to give: the recording ends before its answer/],
      [[[1, '! "way":"received","cut":{"size":9,"kind":"response","id":1}']], /too large/],
      [[[1, '! "event":"lost","id":1,"cause":"It was lost."']], /It was lost/],
      [[[1, '! "event":"oversized","size":9,"kind":"response","id":1']], /too large/],
    ] as const) {
      const { client } = startReplay(recordingOf([0, request], ...more));
      client.send('{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}');
      const { error } = await client.find(({ id }) => id === 4);
      assert.equal(error?.data?.["code"], "notRecorded");
      assert.match(error.message, why);
    }
  });

  it("answers a ping whether one was recorded or not", async () => {
    const { client, report: review } = startReplay(recordingOf());
    client.send('{"jsonrpc":"2.0","id":1,"method":"ping"}');
    const { result } = await client.find(({ id }) => id === 1);
    assert.deepEqual(result, {});
    assert.ok(!review.hasDiverged);
  });

  it("gives what it says to a subscription the id of whoever listens", async () => {
    const key = "io.modelcontextprotocol/subscriptionId";
    const received = (id: string): string =>
      `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"${key}":${id}}}}`;
    const { client } = startReplay(
      recordingOf(
        [0, '> {"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"a":1}}'],
        ...call(4, "t", "{}", "{}"),
        [9, `< ${received("3")}`],
      ),
    );
    client.send('{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"b":2}}');
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
    const { client, reports: reported, report: review } = startReplay(recording);
    client.send(ask("1", "read", '{"path":"/b","deep":{"list":[1,3]}}'));
    const { error } = await client.find(({ id }) => id === 1);
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
    const { client, reports: reported } = startReplay(recording);
    client.send(ask("1", "read", '{"path":"/a","deep":{"list":[1,2]},"api_key":"canary"}'));
    await client.find(({ id }) => id === 1);
    assert.ok(!`${reported.join()}${client.received.join()}`.includes("canary"));
    assert.match(reported.join(), /arguments\.api_key nothing and not \[not shown\]/);
  });

  it("is answered where only what was taken out of the recording differs", async () => {
    const { client, report: review } = startReplay(recording);
    for (const id of ["1", "2"]) client.send(ask(id, "third", '{"token":"canary","n":1}'));
    client.send(ask("3", "third", '{"token":"canary","n":2}'));
    await client.find(({ id }) => id === 3);
    assert.deepEqual(
      client.messages.map(({ result, error }) => result?.["n"] ?? error?.code),
      [3, 3, -31009],
    );
    assert.ok(review.hasDiverged);
  });

  it("may ask in another order than was recorded, and is told at the end how much it never asked", async () => {
    const { client, reports, matcher } = startReplay(recording);
    const recorded = matcher.neverRequested;
    client.send(ask("2", "third", '{"token":"","n":1}'));
    client.send(ask("3", "read", '{"path":"/a","deep":{"list":[1,2]}}'));
    await client.find(({ id }) => id === 3);
    assert.deepEqual(reports, []);
    assert.equal(matcher.neverRequested, recorded - 2);
  });

  it("is told so often, and then only counted", async () => {
    const { client, reports: reported, report: review, matcher: score } = startReplay(recording);
    for (let id = 1; id <= 50; id++) client.send(ask(String(id), "none", "{}"));
    await client.find(({ id }) => id === 50);
    assert.equal(reported.length, 21);
    assert.match(
      review.summary(score.neverRequested),
      /50 not recorded.* 3 recorded and never made/,
    );
  });
});
