import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import {
  attachmentFileName,
  type Attachment,
  type CallReport,
  describeAttachment,
  describeResult,
  type ResultView,
  saveAttachment,
} from "../../src/cli/call-result.ts";
import { formatProgress } from "../../src/cli/commands/call.ts";
import { sanitizeLines } from "../../src/terminal/log.ts";
import { HubError } from "../../src/base/errors.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import { itIn } from "../harness/in-folder.ts";

function answer(members: string, view: ResultView = "texts"): CallReport {
  const frame = parseMessage(Buffer.from(`{"jsonrpc":"2.0","id":1,${members}}`));
  assert.equal(frame.kind, "response");
  return describeResult(frame, view);
}

/** What is printed if nothing is saved. */
const print = ({ parts }: CallReport): string =>
  parts.map((part) => (part.kind === "text" ? part.text : describeAttachment(part))).join("\n");

const content = (...blocks: string[]): CallReport =>
  answer(`"result":{"content":[${blocks.join()}]}`);

const text = (words: string): string => `{"type":"text","text":${JSON.stringify(words)}}`;

const PIXELS = Buffer.from("pixels").toString("base64");

describe("the answer to a call", () => {
  it("is its texts, as they are", () => {
    const account = content(text("a\nb"), text(""), '{"x":1,"text":"c","type":"text"}');
    assert.deepEqual([account.stream, print(account), account.code], ["stdout", "a\nb\n\nc", 0]);
  });

  it("describes in one line what is no text: what, name, type and size", () => {
    const account = content(
      text("look"),
      `{"type":"image","data":"${PIXELS}","mimeType":"image/png"}`,
      `{"type":"audio","data":"${"AAAA".repeat(1000)}","mimeType":"audio/mpeg"}`,
      `{"type":"resource","resource":{"uri":"file:///a.pdf","mimeType":"application/pdf","blob":"${PIXELS}"}}`,
      '{"type":"resource","resource":{"uri":"file:///a.txt","text":"inside"}}',
      '{"type":"resource_link","uri":"file:///b.txt","name":"b","mimeType":"text/plain","description":"more"}',
      '{"type":"resource_link","uri":"file:///c.txt"}',
    );
    assert.deepEqual(print(account).split("\n"), [
      "look",
      "[image: image/png, 6 B]",
      "[audio: audio/mpeg, 3 KB]",
      "[file: file:///a.pdf, application/pdf, 6 B]",
      "inside",
      "[link: file:///b.txt (b, text/plain): more]",
      "[link: file:///c.txt]",
    ]);
  });

  it("shows what it does not know as the JSON that it is", () => {
    for (const block of [
      '{"type":"hologram","x":1.0}',
      '{"type":"text","text":5}',
      '{"type":"image","x":1.0}',
      '{"type":"resource","resource":{"uri":"x"}}',
      '{"type":"resource"}',
      '{"type":"resource_link","name":"x"}',
      "17",
      "null",
    ]) {
      assert.equal(print(content(block)), block);
    }
  });

  it("is its structured content if it has no words, over several lines, its values as spelled", () => {
    const structured = '{"n":1.0,"big":1234567890123456789,"list":[1e2,{}],"in":{"a\\u0062":[ ]}}';
    const list = '"list": [\n    1e2,\n    {}\n  ]';
    const numbers = '"n": 1.0,\n  "big": 1234567890123456789';
    const shown = `{\n  ${numbers},\n  ${list},\n  "in": {\n    "ab": [ ]\n  }\n}`;
    for (const empty of ["", '"content":[],', `"content":[${text("")}],`])
      assert.equal(print(answer(`"result":{${empty}"structuredContent":${structured}}`)), shown);
    const both = `"result":{"content":[${text("words")}],"structuredContent":${structured}}`;
    assert.equal(print(answer(both)), "words");
    assert.equal(print(answer(both, "structured")), shown);
  });

  it("is not printed, with code 1, if it has no structured content and that is wanted", () => {
    const account = answer(`"result":{"content":[${text("words")}]}`, "structured");
    assert.deepEqual([account.stream, account.code], ["stderr", 1]);
    assert.match(print(account), /no structured content/);
  });

  it("may be nested deeper than can be shown line by line", () => {
    const deep = `{"result":{"structuredContent":${"[".repeat(2000)}${"]".repeat(2000)}}`;
    const shown = print(answer(deep.slice(1)));
    assert.match(shown, /^\[\n {2}\[/);
    assert.ok(shown.split("\n").length < 50);
  });

  it("is the whole result, byte for byte, if it is wanted raw", () => {
    const result = '{"content":[],"n":1.0, "isError" : true}';
    const account = answer(`"result":${result}`, "raw");
    assert.deepEqual([account.stream, print(account), account.code], ["stdout", result, 1]);
  });

  it("goes to stderr with code 1 if the tool failed", () => {
    for (const view of ["texts", "structured"] as const) {
      const failure = `"result":{"isError":true,"content":[${text("no such file")}]}`;
      const account = answer(failure, view);
      assert.deepEqual([account.stream, account.code], ["stderr", 1]);
      assert.equal(print(account), "no such file");
    }
  });

  it("has the exit code of the hub's own error if the hub made the result", () => {
    const failed = (meta: string) =>
      answer(`"result":{"isError":true,"content":[${text("x")}],"_meta":${meta}}`).code;
    assert.equal(failed('{"toolmux/error":"callTimeout"}'), 124);
    for (const meta of ['{"toolmux/error":"nonsense"}', '{"other":1}', "5"])
      assert.equal(failed(meta), 1);
  });

  it("is the hub's sentence, the server's last words and the hub's exit code for an error of the hub", () => {
    const error = new HubError("connectTimeout", "It took too long.", { stderr: ["one", "two"] });
    const account = answer(`"error":${JSON.stringify(error.toRpc())}`);
    const shown = "toolmux: It took too long.\n  one\n  two";
    assert.deepEqual([account.stream, print(account), account.code], ["stderr", shown, 3]);
  });

  it("names the server's error, its number and its data, with code 1", () => {
    for (const data of ['{"n":1.0}', '{"code":"connectTimeout"}', '{"code":"toString"}', "null"]) {
      const account = answer(`"error":{"code":-32050,"message":"closed","data":${data}}`);
      assert.deepEqual([account.stream, account.code], ["stderr", 1]);
      assert.ok(print(account).endsWith(` -32050: "closed"\n  ${data}`));
    }
  });

  it("keeps its lines on a terminal, and loses what moves the cursor or changes colours", () => {
    assert.equal(sanitizeLines("a\tb\r\nc\n\u001b[31md\u0007\u009b\r"), "a\tb\nc\n�[31md���");
    assert.equal(sanitizeLines("a\u202eb\nc\u{e0041}d"), "a\\u{202e}b\nc\\u{e0041}d");
  });
});

const attach = (name: string, type = "", what: Attachment["what"] = "file"): Attachment => {
  return { kind: "attachment", what, type, name, bytes: Buffer.from("pixels") };
};

describe("what is saved of an answer", () => {
  for (const [name, type, file] of [
    ["", "image/png", "image.png"],
    ["", "image/jpeg", "image.jpg"],
    ["", "image/svg+xml", "image.svg"],
    ["", "IMAGE/PNG; q=1", "image.png"],
    ["", "", "image.bin"],
    ["", "../../etc", "image.bin"],
    ["", "image/x.y/z", "image.bin"],
    ["file:///home/me/report.pdf", "application/pdf", "report.pdf"],
    ["https://example.com/a/photo.PNG?x=/etc/passwd#y", "", "photo.PNG"],
    ["demo://thing/1", "application/octet-stream", "1.bin"],
    ["../../etc/passwd", "text/plain", "passwd.txt"],
    ["x/..%2f..%2fetc%2fpasswd", "", "etc_passwd.bin"],
    ["x\\..\\evil.exe", "", "evil.exe"],
    ["x/.bashrc", "", "bashrc.bin"],
    ["x/..", "image/png", "image.png"],
    ["x/%00%1b[31m", "image/png", "31m.png"],
    ["x/-rf", "", "rf.bin"],
    ["x/%E0%A4%A", "", "E0_A4_A.bin"],
    ["x/ü ü.png", "", "image.png"],
    [`x/${"y".repeat(300)}.txt`, "", `${"y".repeat(80)}.txt`],
  ] as const) {
    it(`gets a safe name: ${JSON.stringify([name.slice(0, 50), type])} → ${file.slice(0, 50)}`, () => {
      const safe = attachmentFileName(attach(name, type, "image"));
      assert.equal(safe, file);
      assert.match(safe, /^[A-Za-z0-9_][A-Za-z0-9._-]*$/);
    });
  }

  itIn("overwrites nothing and follows no link, but takes another name", async ({ root }) => {
    const folder = join(root, "folder");
    await mkdir(folder);
    const image = attach("", "image/png", "image");
    assert.equal(await saveAttachment(image, folder), join(folder, "image.png"));
    await writeFile(join(folder, "image-2.png"), "mine");
    await symlink(join(root, "elsewhere"), join(folder, "image-3.png"));
    assert.equal(await saveAttachment(image, folder), join(folder, "image-4.png"));
    assert.equal(await readFile(join(folder, "image.png"), "utf8"), "pixels");
    assert.equal(await readFile(join(folder, "image-2.png"), "utf8"), "mine");
    assert.deepEqual(await readdir(root), ["folder"]);
  });

  it("goes nowhere if there is no such folder", async () => {
    await assert.rejects(saveAttachment(attach("x"), "/dev/null/x"), /ENOTDIR/);
  });
});

describe("progress", () => {
  for (const [progress, shown] of [
    [{ progress: 3, total: 10, message: "copying" }, "3/10 (30%) copying"],
    [{ progress: 3, total: 10 }, "3/10 (30%)"],
    [{ progress: 0.5, total: 1 }, "0.5/1 (50%)"],
    [{ progress: 12, total: 10 }, "12/10 (100%)"],
    [{ progress: 3 }, "3"],
    [{ progress: 3, total: 0, message: "a\u001b[2J\nb" }, "3 a [2J b"],
    [{ message: "m" }, "m"],
    [{ progress: "x", total: null, message: 5 }, ""],
  ] as const) {
    it(`is shown in one line: ${JSON.stringify(progress)}`, () => {
      assert.equal(formatProgress(progress), shown);
    });
  }
});

describe("a result with members of other types", () => {
  for (const [result, printed] of [
    ['{"content":null,"structuredContent":null}', ""],
    ['{"content":null,"structuredContent":{"a":1}}', '{\n  "a": 1\n}'],
    ['{"content":"plain"}', '{"content":"plain"}'],
    ['{"content":{"type":"text","text":"x"}}', '{"content":{"type":"text","text":"x"}}'],
    ['{"content":[5,null]}', "5\nnull"],
  ] as const) {
    it(`loses nothing of what the server said, and null is absent: ${result}`, () => {
      const report = answer(`"result":${result}`);
      assert.deepEqual([report.stream, print(report), report.code], ["stdout", printed, 0]);
    });
  }

  it("has no structured content if that is null", () => {
    assert.equal(answer('"result":{"structuredContent":null}', "structured").code, 1);
  });
});

describe("an error of a server", () => {
  for (const [error, said] of [
    ['{"message":"no code here"}', '"no code here"'],
    ['{"code":-5,"message":"broken \\u001b[31m\\"x\\""}', '-5: "broken \\u{1b}[31m\\"x\\""'],
    [`{"code":-5,"message":"${"x".repeat(2000)}"}`, `"${"x".repeat(499)}…"`],
    ['{"code":"E1","message":"m"}', 'an error: "m"'],
    ['{"data":{"code":"constructor"}}', "an error, without a reason"],
    ['{"code":1,"message":{"a":1},"data":{"code":"toString"}}', "error 1, without a reason"],
    ['"just text"', '"just text"'],
    ["null", "without a reason"],
    ["7", "without a reason"],
    ['{"code":3,"message":null}', "error 3, without a reason"],
    ['[{"message":"in an array"}]', '"in an array"'],
  ] as const) {
    it(`is quoted, with exit code 1, whatever its shape: ${error.slice(0, 60)}`, () => {
      const report = answer(`"error":${error}`);
      assert.deepEqual([report.stream, report.code], ["stderr", 1]);
      assert.ok(print(report).includes(said), print(report));
    });
  }
});
