import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { answerText } from "../../bench/answer.ts";
import { Flight } from "../../bench/flight.ts";
import type { Command } from "../../bench/peer.ts";
import { killAll, runJob } from "../../bench/runner.ts";
import { SHAPES } from "../../bench/stage.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";

/** The load client and the peers are programs for bun. */
const skip = "Bun" in globalThis ? false : "runs on bun only";

const path = (file: string) => fileURLToPath(new URL(`../../${file}`, import.meta.url));

/** The ids of requests, which are their keys as well. */
function idsOf(requests: Buffer): number[] {
  const lines = requests.toString().trimEnd().split("\n");
  return lines.map((line) => {
    const { id, params } = JSON.parse(line);
    assert.equal(params.arguments.key, String(id));
    return id;
  });
}

function answer(id: number, key = id, more = ""): Buffer {
  const content = [{ type: "text", text: answerText(key, 1) + more }];
  return Buffer.from(`${JSON.stringify({ jsonrpc: "2.0", id, result: { content } })}\n`);
}

async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** As if the bytes had been read at that time. */
function feed(flight: Flight, bytes: Buffer, now: number): void {
  const { bytes: room, offset } = flight.room();
  bytes.copy(room, offset);
  flight.accept(bytes.length, now);
}

describe("a flight of calls", () => {
  it("measures each call from its request to the end of its answer, in whatever order answers come", () => {
    const flight = new Flight(["echo"], 1, 3);
    flight.record();
    const [a = 0, b = 0, c = 0] = idsOf(flight.take(10));
    feed(flight, answer(c), 11);
    const [d = 0] = idsOf(flight.take(12));
    feed(flight, Buffer.concat([answer(a), answer(d), answer(b)]), 15);
    assert.deepEqual([...flight.latencies()], [1000, 3000, 5000, 5000]);
    assert.equal(flight.answered, 4);
    assert.equal(flight.free, 3);
    flight.verify();
  });

  it("refuses an answer with another call's key, a second answer, and an error", () => {
    const fly = () => {
      const flight = new Flight(["echo"], 1, 2);
      const [a = 0, b = 0] = idsOf(flight.take(0));
      feed(flight, answer(a), 1);
      return { flight, a, b };
    };
    const mixed = fly();
    assert.throws(() => feed(mixed.flight, answer(mixed.b, mixed.a), 1), /not the answer/);
    const twice = fly();
    assert.throws(() => feed(twice.flight, answer(twice.a), 1), /twice/);
    const failed = fly();
    const error = `{"jsonrpc":"2.0","id":${failed.b},"error":{"code":1,"message":"no"}}\n`;
    assert.throws(() => feed(failed.flight, Buffer.from(error), 1), /"message":"no"/);
  });

  it("finds a changed text in a sampled answer, which its quick look passes over", () => {
    const flight = new Flight(["echo"], 1, 1);
    for (let call = 0; call < 101; call++) {
      const [id = 0] = idsOf(flight.take(0));
      const line = answer(id);
      if (call === 100) line[line.indexOf("utf8")] = 0x55;
      feed(flight, line, 1);
    }
    assert.throws(() => flight.verify(), /not the answer/);
  });
});

describe("the programs", () => {
  const echo: Command = { file: process.execPath, args: [path("bench/peers/echo.ts")], env: {} };
  const load = (peer = echo) => {
    const job = { load: { flight: 4, lines: 1, pad: 0 }, rounds: 2, warmUp: 20, duration: 50 };
    return runJob("contest", { entrants: [{ peer, tools: ["echo"] }], ...job });
  };

  /** The echo server in C; undefined without a compiler. */
  const noCompiler = skipWithout({
    isMet: missingPrograms(["cc"]).length === 0,
    tests: "the echo server of the benchmark in C",
    remedy: "there is no cc (apt-get install gcc libc6-dev)",
  });
  /** @returns undefined if there is no compiler */
  const compileEcho = (folder: string): string | undefined => {
    if (noCompiler !== false) return undefined;
    const file = join(folder, "echo");
    const { status } = spawnSync("cc", ["-o", file, path("bench/peers/echo.c")]);
    return status === 0 ? file : undefined;
  };

  it("that echo answer alike in C and in JavaScript", { skip: skip || noCompiler }, () => {
    const folder = mkdtempSync(join(tmpdir(), "bench-"));
    try {
      const file = compileEcho(folder);
      assert.ok(file !== undefined, "cc cannot compile");
      const commands = [[file], [process.execPath, ...echo.args]];
      const methods = ["initialize", "notifications/initialized", "tools/list", "server/discover"];
      const jsonrpc = "2.0";
      const requests = methods.map((method, id) => ({ jsonrpc, method, ...(id !== 1 && { id }) }));
      const key = "12345678";
      const call = (id: string, name: string, more: object = {}, rest: object = {}) => {
        const params = { name, arguments: { key, ...more }, ...rest };
        return { method: "tools/call", params, jsonrpc, id };
      };
      const calls = [
        call("long", "echo", { lines: 10_000, pad: "x".repeat(1 << 20) }),
        call("parked", "park"),
        call("noted", "echo", { notes: 2 }, { _meta: { progressToken: "t" } }),
        call("changed", "change"),
        { jsonrpc, id: "again", method: "tools/list" },
      ];
      const input = [...requests, ...calls].map((each) => `${JSON.stringify(each)}\n`).join("");
      for (const shape of [...SHAPES, "modern"]) {
        const [c, js] = commands.map(([command = "", ...args]) =>
          execFileSync(command, [...args, shape, "5", "0"], { input }).toString(),
        );
        assert.equal(c, js);
        const lines = c!.trimEnd().split("\n");
        const messages = lines.map((line) => JSON.parse(line));
        const progress = (at: number) => ({ progressToken: "t", progress: at });
        const notes: unknown[] = [progress(1), progress(2)];
        const last = ["changed", "notifications/tools/list_changed", "again"];
        const seen = messages.map(({ id, method, params }) => id ?? params ?? method);
        assert.deepEqual(seen, [0, 2, 3, "long", ...notes, "noted", ...last]);
        const answers = new Map(messages.map(({ id, result }) => [id, result]));
        const { tools } = answers.get(2);
        assert.deepEqual([tools.length, tools[2].name], [5, "park"]);
        assert.match(answers.get("again").tools[3].description, /1 times/);
        const isModern = shape === "modern";
        for (const id of [2, 3, "long"]) {
          assert.equal(answers.get(id).resultType, isModern ? "complete" : undefined);
        }
        assert.equal("supportedVersions" in answers.get(3), isModern);
        assert.equal(answers.get("long").content[0].text, answerText(key, 10_000));
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("that wait for a mute server can be killed, and it with them", { skip }, async () => {
    const listener = createServer();
    const port = await listen(listener);
    const args = ["-e", `require("node:net").connect(${port}, "127.0.0.1").on("error", () => {})`];
    const running = assert.rejects(load({ ...echo, args }), /SIGKILL/);
    const [socket] = (await once(listener, "connection")) as [Socket];
    socket.resume().on("error", () => {});
    killAll();
    await Promise.all([running, once(socket, "close")]);
    listener.close();
  });
});
