import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { assert as check, pre, property, string } from "fast-check";
import { utf8 } from "../../src/base/bytes.ts";
import { HubError } from "../../src/base/errors.ts";
import { encodeAnnouncement, readAnnouncement } from "../../src/fleet/announcements.ts";
import { frameKindOf, readWireError, WireErrorCode } from "../../src/fleet/frames.ts";
import { PART_SIZE, PartReader, PARTS_IN_FLIGHT, PartSender } from "../../src/fleet/parts.ts";
import {
  agreesWithName,
  conventionalTail,
  decodeToken,
  encodeToken,
  hubOf,
  isToken,
  parseRequestSubject,
  requestHead,
  requestsTo,
  requestTail,
  Subject,
} from "../../src/fleet/subjects.ts";

/** Whether a subscription to `pattern` gets what is published to `subject`, as NATS says. */
function matches(pattern: string, subject: string): boolean {
  const tokens = subject.split(".");
  const wanted = pattern.split(".");
  return (
    wanted.every((one, i) =>
      one === ">"
        ? tokens.length > i
        : tokens[i] !== undefined && (one === "*" || one === tokens[i]),
    ) &&
    (wanted.at(-1) === ">" || wanted.length === tokens.length)
  );
}

describe("subjects of a fleet", () => {
  it("encode every name as one token, from which the name comes back", () => {
    check(
      property(string({ unit: "binary", minLength: 1, maxLength: 200 }), (name) => {
        // Halves of surrogate pairs have no UTF-8.
        pre(name.isWellFormed());
        const token = encodeToken(name);
        assert.match(token, /^[A-Za-z0-9_-]+$/);
        assert.equal(decodeToken(token), name);
      }),
    );
  });

  it("give different names different tokens, also those that look encoded", () => {
    const names = ["_", "-x-", "-x-Xw", "Xw", "a.b", "a*", ">", "", "ä", "-x-YS5i", "a b", "__"];
    assert.equal(new Set(names.map(encodeToken)).size, names.length);
    for (const name of names) assert.equal(decodeToken(encodeToken(name)), name);
  });

  it("leave names as they are that the convention allows in subjects", () => {
    for (const name of ["read_file", "get-issue", "X9"]) assert.equal(encodeToken(name), name);
  });

  it("decode no token in two ways", () => {
    for (const token of ["-x-aGk", "-x-YS5i=", "-x-YS5iA", "_", "a.b", "-x-****", "a*"])
      assert.equal(decodeToken(token), undefined, token);
  });

  it("refuse a name that is too long for a line of NATS", () => {
    assert.throws(
      () => encodeToken("file:///" + "x".repeat(3000)),
      (error) => error instanceof HubError && error.code === "messageTooLarge",
    );
  });

  it("say of a request who asks whom for what, and are got by whom they are for", () => {
    const address = { server: "my.files", method: "resources/templates/list", name: undefined };
    for (const hub of [undefined, "laptop", "host.example"]) {
      const subject = requestHead("acme", "u1", hub) + requestTail(address);
      const { name: _, ...rest } = address;
      assert.deepEqual(parseRequestSubject(subject), {
        ...rest,
        tenant: "acme",
        user: "u1",
        token: "_",
        hub,
      });
      assert.ok(matches(requestsTo("my.files", hub), subject));
      assert.ok(!matches(requestsTo("files", hub), subject));
      assert.equal(matches(requestsTo("my.files", "other"), subject), false);
    }
  });

  it("are no requests if a token is missing, empty or no token", () => {
    const bad = [
      "mcp.v1.req.a.b.s._",
      "mcp.v2.req.a.b.s.tools.list._",
      "mcp.v1.req.a.b.s.tools.list.",
      "mcp.v1.req.a..s.tools.list._",
      "mcp.v1.req.a.b.s.tools.call.a b",
      "mcp.v1.hub.req.a.b.s.tools.list._",
      "mcp.v1.hub.-x-aGk.req.a.b.s.tools.list._",
      "mcp.v1.who",
      "",
    ];
    for (const subject of bad) assert.equal(parseRequestSubject(subject), undefined, subject);
  });

  it("agree with the name in a request's body only if they are made of it", () => {
    const on = (token: string, hub?: string) =>
      parseRequestSubject(`${requestHead("t", "u", hub)}s.tools.call.${token}`);
    const table: readonly [
      token: string,
      name: string | undefined,
      hub: string | undefined,
      agrees: boolean,
    ][] = [
      ["echo", "echo", undefined, true],
      ["echo", "echo", "h", true],
      ["echo", "delete", undefined, false],
      ["_", "echo", undefined, false],
      ["_", "echo", "h", false],
      ["_", undefined, "h", true],
      ["_", undefined, undefined, true],
      ["echo", undefined, undefined, false],
      // The convention has no token of its own for such names.
      ["_", "a.b", undefined, true],
      ["_", "_", undefined, true],
      ["_", "a.b", "h", false],
      [encodeToken("a.b"), "a.b", undefined, true],
      [encodeToken("a.b"), "a.b", "h", true],
      [encodeToken("a.b"), encodeToken("a.b"), undefined, false],
    ];
    for (const [token, name, hub, agrees] of table) {
      const address = on(token, hub);
      assert.ok(address);
      assert.equal(agreesWithName(address, name), agrees, JSON.stringify([token, name, hub]));
    }
  });

  it("have `_` for names that are no tokens where the peer knows only the convention", () => {
    const call = { server: "s", method: "tools/call" };
    assert.equal(conventionalTail({ ...call, name: "echo" }), "s.tools.call.echo");
    assert.equal(conventionalTail({ ...call, name: "a.b" }), "s.tools.call._");
    assert.equal(conventionalTail({ ...call, name: undefined }), "s.tools.call._");
    const read = { server: "s", method: "resources/read", name: "readme" };
    assert.equal(conventionalTail(read), "s.resources.read._");
    const address = parseRequestSubject(`${requestHead("t", "u")}s.resources.read._`);
    assert.ok(address && agreesWithName(address, "readme"));
    const own = parseRequestSubject(`${requestHead("t", "u", "h")}s.resources.read._`);
    assert.ok(own && !agreesWithName(own, "readme"));
  });

  it("name the hub that announces itself", () => {
    for (const hub of ["h1", "host.example", "_"]) {
      assert.equal(hubOf(Subject.up(hub)), hub);
      assert.ok(matches(Subject.ups, Subject.up(hub)));
      assert.ok(!matches(Subject.ups, Subject.down(hub)));
      assert.ok(matches(Subject.downs, Subject.down(hub)));
    }
    assert.equal(hubOf("mcp.v1.who"), undefined);
    assert.ok(isToken("h1"));
  });
});

describe("announcements of hubs", () => {
  const announcement = {
    hub: "h1",
    instance: "abc",
    version: "1",
    servers: [
      { name: "git", digest: "d" },
      { name: "files", digest: undefined },
    ],
  };

  it("come back as they were sent", () => {
    assert.deepEqual(readAnnouncement(encodeAnnouncement(announcement)), announcement);
  });

  it("are believed only as far as they have the right form", () => {
    const read = (value: unknown) => readAnnouncement(utf8(JSON.stringify(value)));
    for (const bad of [
      null,
      [],
      {},
      { ...announcement, hub: 1 },
      { ...announcement, servers: {} },
      { ...announcement, instance: "a.b" },
      { ...announcement, hub: "x".repeat(1000) },
    ])
      assert.equal(read(bad), undefined);
    assert.equal(readAnnouncement(utf8("{")), undefined);
    const servers = [{ name: "git" }, { name: "git" }, { name: 1 }, null, { name: "" }];
    assert.deepEqual(read({ ...announcement, servers })?.servers, [
      { name: "git", digest: undefined },
    ]);
    const many = Array.from({ length: 2000 }, (_, i) => ({ name: `s${i}` }));
    assert.equal(read({ ...announcement, servers: many }), undefined);
  });
});

describe("frames", () => {
  it("are only those of the wire", () => {
    assert.equal(frameKindOf("part"), "part");
    assert.equal(frameKindOf("END"), undefined);
    assert.equal(frameKindOf(""), undefined);
  });

  it("translate the errors of the wire to those of the hub, and leave all others alone", () => {
    assert.equal(readWireError(WireErrorCode.lost, "x", "s")?.code, "answerLost");
    assert.equal(readWireError(WireErrorCode.denied, undefined, "s")?.code, "accessDenied");
    assert.equal(readWireError(WireErrorCode.tooLarge, undefined, "s")?.code, "messageTooLarge");
    assert.equal(readWireError(-32602, "x", "s"), undefined);
    assert.equal(readWireError(undefined, undefined, "s"), undefined);
  });
});

describe("a response in parts", () => {
  it("arrives whole, with at most eight parts under way", () => {
    const bytes = Buffer.alloc(PART_SIZE * 20 + 7, "abcdefg");
    const reader = new PartReader(bytes.length);
    let inFlight = 0;
    let most = 0;
    let ends = 0;
    const sender = new PartSender(bytes, PART_SIZE, (kind, part) => {
      assert.ok(part.length <= PART_SIZE);
      most = Math.max(most, ++inFlight);
      if (kind === "end") ends++;
      assert.ok(reader.add(part));
    });
    sender.start();
    assert.equal(inFlight, PARTS_IN_FLIGHT);
    while (inFlight > 0) {
      inFlight--;
      sender.acknowledged();
    }
    assert.equal(most, PARTS_IN_FLIGHT);
    assert.equal(ends, 1);
    assert.ok(sender.isDone);
    assert.ok(reader.take().equals(bytes));
  });

  it("goes on for no acknowledgement that belongs to no part", () => {
    let sent = 0;
    const sender = new PartSender(Buffer.alloc(100), 1, () => sent++);
    for (let i = 0; i < 5; i++) sender.acknowledged();
    assert.equal(sent, 0);
    sender.start();
    assert.equal(sent, PARTS_IN_FLIGHT);
  });

  it("is given up as soon as it is too large", () => {
    const reader = new PartReader(10);
    assert.ok(reader.add(Buffer.alloc(10)));
    assert.ok(!reader.add(Buffer.alloc(1)));
  });
});
