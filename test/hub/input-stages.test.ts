import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { afterEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { injectFaults, type InputStage } from "../../src/base/fault-injection.ts";
import { Recorder } from "../../src/recording/recorder.ts";
import { recordTransport } from "../../src/recording/recorded-transport.ts";
import { memoryTransportPair } from "../../src/transport/memory.ts";
import { utf8 } from "../../src/base/bytes.ts";
import { TransportRecorder } from "../contract/transport.ts";
import { withApi } from "../control/controlled-hub.ts";
import { setUpHttp } from "../fixtures/http-client.ts";
import {
  EVENT_STREAM_HEADERS,
  HttpTransportRecorder,
  requestMethodOf,
  respondJson,
  withHandshake,
} from "../fixtures/http-transport-recorder.ts";
import { callTool, initialize, ScriptedServer, setUpHub } from "../fixtures/memory-hub.ts";
import { RawHttpServer } from "../fixtures/raw-http-server.ts";
import { MemoryRecordingSink, recordingOf, startReplay } from "../fixtures/recording.ts";
import { NEVER, withScript } from "../transport/script-server.ts";

const DEFECT = "a defect made for a test";
const PING = { jsonrpc: "2.0", id: 1, method: "ping" };

/** Makes the next entry into this stage throw, and none after it. */
function failNext(stage: InputStage): void {
  let isDone = false;
  injectFaults((entered) => {
    if (entered !== stage || isDone) return;
    isDone = true;
    throw new Error(DEFECT);
  });
}

afterEach(() => injectFaults(undefined));

describe("an exception in the handling of what one peer sends", () => {
  it("ends the connection of a stdio server, with the cause in the log", () =>
    withScript(
      'echo "{}"; read line; echo "{\\"jsonrpc\\":\\"2.0\\",\\"method\\":\\"a\\"}"; sleep 1000',
      async ({ link, events, closed }) => {
        await events.until("the first line", () => events.logs.length > 0);
        failNext("line");
        link.send(utf8("go"));
        await closed();
        assert.ok(events.logs.some((text) => text.includes(DEFECT)));
        assert.equal(events.causes[0]?.code, "connectionLost");
        assert.deepEqual(events.messages, []);
      },
    ));

  for (const stage of ["httpResponse", "event"] as const)
    it(`ends the connection of an HTTP server, with the cause in the log (${stage})`, async () => {
      const server = await RawHttpServer.start(
        withHandshake((received) => {
          if (received.method !== "POST") received.respond(405);
          else if (requestMethodOf(received) === "events")
            received.beginResponse(200, EVENT_STREAM_HEADERS).write("data: {}\n\n");
          else respondJson(received);
        }),
      );
      const other = await HttpTransportRecorder.openInitialized(server);
      const recorder = await HttpTransportRecorder.openInitialized(server);
      // All earlier requests are answered when the one after them is.
      for (const one of [other, recorder])
        assert.match(String(await one.sendRequest("first").outcome), /"ok"/);
      failNext(stage);
      recorder.sendRequest("events");
      await recorder.until(/closed connectionLost/);
      assert.ok(recorder.has(new RegExp(`log error .*${DEFECT}`)));
      assert.match(String(await other.sendRequest("more").outcome), /"ok"/);
      await Promise.all([recorder.transport.close(), other.transport.close()]);
      await server.allClosed();
    });

  it("is answered by 500 to an HTTP client, with the cause in the log, and no other client notices", async () => {
    const faults: string[] = [];
    const { newClient } = setUpHttp({}, { server: { logFault: (text) => faults.push(text) } });
    const [client, other] = [newClient(), newClient()];
    await client.initialize();
    await other.initialize();
    failNext("httpPost");
    assert.equal((await client.post(PING)).status, 500);
    assert.equal(faults.length, 1);
    assert.ok(faults[0]?.includes(DEFECT));
    assert.equal((await other.post(PING)).status, 200);
    assert.equal((await client.post(PING)).status, 200);
  });

  it("ends a connection in memory, such as a plugin's server, and no other", async () => {
    const [first, second] = memoryTransportPair();
    const [ours, theirs] = [new TransportRecorder(), new TransportRecorder()];
    await Promise.all([first.open(ours, NEVER), second.open(theirs, NEVER)]);
    failNext("memory");
    second.send(utf8(JSON.stringify(PING)));
    await ours.until("the end", () => ours.causes.length > 0);
    await theirs.until("the end", () => theirs.causes.length > 0);
    assert.ok(ours.logs.some((text) => text.includes(DEFECT)));
  });

  it("ends the connection whose messages could not be recorded", async () => {
    const [first, second] = memoryTransportPair();
    const sink = new MemoryRecordingSink();
    const recorder = new Recorder({
      sink,
      limit: 1e6,
      now: () => 0,
      redact: (text) => text,
      warn: () => {},
    });
    const [ours, theirs] = [new TransportRecorder(), new TransportRecorder()];
    const recorded = recordTransport(first, recorder.nextClient(), recorder);
    await Promise.all([recorded.open(ours, NEVER), second.open(theirs, NEVER)]);
    failNext("recording");
    second.send(utf8(JSON.stringify(PING)));
    await ours.until("the end", () => ours.causes.length > 0);
    assert.deepEqual(ours.messages, []);
  });

  it("ends the replay of a server for the client that asked", async () => {
    const recording = recordingOf(
      [0, `> ${JSON.stringify(PING)}`],
      [1, '< {"jsonrpc":"2.0","id":1,"result":{}}'],
    );
    const { client, endedByServer } = startReplay(recording);
    const other = startReplay(recording);
    failNext("replay");
    client.send(PING);
    await client.until(() => client.isClosed);
    await endedByServer;
    other.client.send(PING);
    await other.client.find(({ id }) => id === 1);
    await other.client.transport.close();
  });

  it("is answered by 500 in the control API", () =>
    withApi(async ({ fetch }) => {
      failNext("control");
      assert.equal((await fetch("GET", "/hub")).status, 500);
      assert.equal((await fetch("GET", "/hub")).status, 200);
    }));

  it("ends one server of a hub, whose clients and other servers go on", async () => {
    const { client, events } = setUpHub({ a: new ScriptedServer("t"), b: new ScriptedServer("t") });
    await initialize(client);
    assert.ok((await callTool(client, "a__t")).result);
    assert.ok((await callTool(client, "b__t")).result);
    let count = 0;
    // The first message is the client's call, the second one is the server's answer.
    injectFaults((stage) => {
      if (stage === "memory" && ++count === 3) throw new Error(DEFECT);
    });
    const { error, result } = await callTool(client, "a__t");
    injectFaults(undefined);
    assert.ok(error !== undefined || result?.["isError"] === true);
    assert.ok(events.some((event) => JSON.stringify(event).includes(DEFECT)));
    assert.ok((await callTool(client, "b__t")).result);
  });
});

describe("a hub whose client on stdio sends what it cannot handle", () => {
  it("ends with an exit code other than 0, and with the cause on stderr", async () => {
    const folder = mkdtempSync(join(tmpdir(), "toolmux-fault-"));
    const config = join(folder, "toolmux.toml");
    writeFileSync(config, "[hub]\ncontrol = false\n");
    const program = fileURLToPath(new URL("../fixtures/processes/faulty-hub.ts", import.meta.url));
    const env = { PATH: process.env["PATH"], HOME: folder, FAULT_AFTER: "0" };
    const child = spawn(process.execPath, [program, "serve", "--config", config], { env });
    let stderr = "";
    child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
    child.stdin.write(`${JSON.stringify(PING)}\n`);
    const [code] = (await once(child, "close")) as [number | null];
    rmSync(folder, { recursive: true });
    assert.equal(code, 1, stderr);
    assert.ok(stderr.includes(DEFECT), stderr);
  });
});
