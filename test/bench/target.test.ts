import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { textOf } from "../../src/base/bytes.ts";
import { chooseTool } from "../../src/bench/run.ts";
import { type BenchSubject, BenchConnection } from "../../src/bench/target.ts";
import { respond } from "../../src/bench/echo-server.ts";
import { makeCallTemplate } from "../../src/bench/load.ts";
import { Method } from "../../src/protocol/legacy.ts";
import type { Era } from "../../src/protocol/modern.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { buildResult, type Response } from "../../src/jsonrpc/message.ts";
import { chunkedTransportPair } from "../fixtures/memory-transport.ts";

const never = new AbortController().signal;

/**
 * The echo server in this process; `links` are the server's ends, one for each time that it was started.
 * @param empty so many of its lists lack its tool
 */
function makeSubject(empty = 0): { subject: BenchSubject; links: Transport[] } {
  let lists = 0;
  const links: Transport[] = [];
  const makeLink: BenchSubject["makeTransport"] = async () => {
    const [ours, theirs] = chunkedTransportPair();
    links.push(theirs);
    await theirs.open(
      {
        message: (frame) => {
          if (frame.kind !== "request") return;
          const isEmpty = frame.method === Method.toolsList && lists++ < empty;
          theirs.send(
            isEmpty ? buildResult(frame.id, Buffer.from('{"tools":[]}')) : respond(frame),
          );
        },
        log() {},
        oversized() {},
        pressure() {},
        closed() {},
      },
      never,
    );
    return Object.assign(ours, { redact: (text: string) => text });
  };
  return { subject: { kind: "server", name: "echo", makeTransport: makeLink }, links };
}

function call(contact: BenchConnection, args: string): Promise<Response> {
  const [tool] = contact.tools;
  assert.ok(tool !== undefined);
  const { request, rewrite, tool: name } = makeCallTemplate(tool, args, contact.era, true);
  return new Promise((settle, fail) => {
    const record = { method: request.method, name, onResponse: settle, fail, onProgress() {} };
    contact.session?.relay(record, request, rewrite(7));
  });
}

describe("a subject", () => {
  for (const era of ["legacy", "modern"] satisfies Era[]) {
    it(`is met in the ${era} era if that is wanted, and echoes texts as they are spelled`, async () => {
      const { subject } = makeSubject();
      const contact = await BenchConnection.open(subject, era, never);
      assert.equal(contact.era, era);
      const keys = contact.tools.map(({ key }) => key);
      assert.deepEqual(keys, ["echo"]);
      const spelled = '"h\\u00e9, \\/"';
      const { bytes, body } = await call(contact, `{"text":${spelled}}`);
      assert.ok(textOf(bytes, body.start, body.end).includes(`{"type":"text","text":${spelled}}`));
      const sized = await call(contact, '{"size":1000}');
      assert.ok(sized.bytes.includes(Buffer.from(`"${"x".repeat(1000)}"`)));
      await contact.close();
    });
  }

  it("that lists before its servers have started is asked again for what is missing", async () => {
    const { subject } = makeSubject(2);
    const contact = await BenchConnection.open({ ...subject, listWait: 0 }, "legacy", never);
    assert.deepEqual(contact.tools, []);
    const tool = await contact.find((tools) => chooseTool(tools, "echo"));
    assert.equal(tool.key, "echo");
    assert.ok(contact.ready.listed >= 400, "its tools are listed when they are there");
    await contact.close();
    const patient = { ...makeSubject(1).subject, listWait: 60_000 };
    const whole = await BenchConnection.open(patient, "legacy", never);
    const found = whole.find((tools) => chooseTool(tools, "echo"));
    await assert.rejects(found, /There is no tool "echo"/);
    await whole.close();
  });

  it("that is lost is not looked for once nobody measures it", async () => {
    const { subject, links } = makeSubject();
    const contact = await BenchConnection.open(subject, "legacy", never);
    await contact.close();
    await links[0]?.close();
    assert.equal(links.length, 1);
  });
});
