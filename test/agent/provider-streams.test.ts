import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { createModel } from "../../src/agent/create-model.ts";
import type { Model } from "../../src/agent/model.ts";
import { makeModelSpec } from "../../src/manifest/agents.ts";
import { collect, failureOf, finishOf, textOf } from "../contract/model.ts";
import { type ProviderStream, PROVIDER_STREAMS } from "../fixtures/models/provider-streams.ts";
import { type RawHttpRequest, RawHttpServer } from "../fixtures/raw-http-server.ts";

/** Sizes of the pieces in which a body arrives, in bytes. Those of 1 and 3 split characters. */
const PIECE_SIZES = [Infinity, 1, 3, 64] as const;

/** Answers each request with the stream, in pieces that the client reads apart. */
async function replay(
  { status = 200, headers = {}, body }: ProviderStream,
  pieceSize: number,
  request: RawHttpRequest,
): Promise<void> {
  const type = status === 200 ? "text/event-stream" : "application/json";
  const response = request.beginResponse(status, { "Content-Type": type, ...headers });
  const bytes = Buffer.from(body);
  const size = Math.min(pieceSize, Math.max(1, bytes.length));
  for (let at = 0; at < bytes.length; at += size) {
    response.write(bytes.subarray(at, at + size));
    if (at % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  response.end();
}

async function withModel(
  stream: ProviderStream,
  pieceSize: number,
  use: (model: Model) => Promise<void>,
): Promise<void> {
  const server = await RawHttpServer.start((request) => void replay(stream, pieceSize, request));
  const { provider } = stream;
  const url = `http://127.0.0.1:${server.port}/v1`;
  const spec = makeModelSpec({ name: "main", provider, model: "model-x", baseDir: "/", url });
  try {
    const environment = { env: {}, cwd: "/", schemes: new Map() };
    await use(await createModel({ ...spec, apiKey: "key" }, environment));
  } finally {
    server.destroy();
  }
}

async function check(stream: ProviderStream, model: Model): Promise<void> {
  const { expected } = stream;
  if ("fails" in expected) {
    const { data, message } = await failureOf(collect(model));
    const { reason, status, retryAfter } = data ?? {};
    const { fails } = expected;
    assert.equal(reason, fails.reason, message);
    if (fails.status !== undefined) assert.equal(status, fails.status, message);
    assert.equal(retryAfter, fails.retryAfter);
    return;
  }
  const { text = "", thinking = "", calls = [], usage, finish } = expected;
  const parts = await collect(model);
  assert.equal(textOf(parts), text);
  assert.equal(textOf(parts, "thinking"), thinking);
  const found = parts.flatMap((part) => (part.type === "toolCall" ? [part] : []));
  const plain = ({ name, argumentsJson }: (typeof found)[number]): readonly [string, unknown] => [
    name,
    argumentsJson === "" ? {} : (JSON.parse(argumentsJson) as unknown),
  ];
  assert.deepEqual(
    found.map(plain),
    calls.map(([name, json]) => [name, JSON.parse(json) as unknown]),
  );
  const ids = found.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, `ids are not unique: ${ids.join()}`);
  assert.ok(ids.every((id) => id !== ""));
  const end = finishOf(parts);
  if (finish !== undefined) assert.equal(end.reason, finish);
  if (usage !== undefined) {
    const { inputTokens, outputTokens } = end.usage;
    assert.deepEqual([inputTokens, outputTokens], [...usage]);
  }
}

describe("a model understands what its provider sends", () => {
  for (const stream of PROVIDER_STREAMS) {
    it(`${stream.what}, in pieces of any size (${stream.provider})`, async () => {
      for (const size of PIECE_SIZES)
        await withModel(stream, size, (model) => check(stream, model));
    });
  }
});
