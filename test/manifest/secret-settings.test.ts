import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { diffServers } from "../../src/manifest/diff.ts";
import { resolveServer, type SchemeResolvers } from "../../src/manifest/resolve.ts";
import { HubError } from "../../src/base/errors.ts";
import { listSecrets, splitCommand } from "../../src/manifest/interpolate.ts";
import { findProblems, getServer, loadText } from "../fixtures/manifest/manifest-folder.ts";
import { itIn, loadFiles, writeFiles } from "../harness/in-folder.ts";

const SERVER = `[servers.s]\ncommand = "x"\n`;

describe("the table of secrets", () => {
  itIn("says where they are looked for, the last file that says it for all", async (folder) => {
    const { servers } = await loadFiles(folder, [
      `${SERVER}[secrets]\nsources = ["file"]`,
      `[servers.t]\nurl = "http://localhost"\n[secrets]\nsources = ["file", "environment"]`,
      `[secrets]\ncommands = true`,
    ]);
    const sources = servers.map((spec) => "secretSources" in spec && spec.secretSources?.join());
    assert.deepEqual(sources, ["file,environment", "file,environment"]);
  });

  it("need not be there", async () => {
    const { manifest } = await loadText(SERVER);
    assert.equal(getServer(manifest, "s").secretSources, undefined);
  });

  it("is not read in clients' files", async () => {
    const text = `{"mcpServers": {"s": {"command": "x"}}, "secrets": {"sources": ["nowhere"]}}`;
    const { manifest, notes } = await loadText(text, "a.json");
    assert.equal(getServer(manifest, "s").secretSources, undefined);
    assert.match(notes.join(), /ignores them: secrets/);
  });

  it("makes another process of a server only if that wants a secret", async () => {
    for (const [arg, result] of [
      ["plain", "settings"],
      ["${secret:a}", "process"],
    ] as const) {
      const load = async (source: string) => {
        const text = `${SERVER}args = ["${arg}"]\n[secrets]\nsources = ["${source}"]`;
        return { ...getServer((await loadText(text)).manifest, "s"), baseDir: "/" };
      };
      assert.equal(diffServers(await load("file"), await load("environment")), result);
    }
  });
});

describe("${cmd:…}", () => {
  const USE = 'args = ["${cmd:pass show x}"]\n';
  const REFUSAL =
    "found ${cmd:…}, which runs a command; to allow that, set commands = true in the table [secrets] of this file";

  it("may stand where the file allows commands", async () => {
    const { manifest } = await loadText(`${SERVER}${USE}[secrets]\ncommands = true`);
    assert.deepEqual(getServer(manifest, "s").args, ["${cmd:pass show x}"]);
  });

  itIn("is refused in a file that does not, whatever others allow", async (folder) => {
    const files = await writeFiles(folder, `[secrets]\ncommands = true`, `${SERVER}${USE}`);
    const problem = `b.toml:3:9: servers.s.args[0]: ${REFUSAL}`;
    assert.deepEqual(await folder.loadProblems({ files }), [problem]);
  });

  itIn("is refused in the environment variable, which cannot allow it", async (folder) => {
    const env = { TOOLMUX_SERVERS: '{"s": {"command": "${cmd:x}"}}' };
    const problems = (await folder.loadProblems({ env })).join();
    assert.match(problems, /servers?.*commands = true|command: found/);
  });

  it("is no form of clients' files, whatever they hold", async () => {
    const text = `{"mcpServers": {"s": {"command": "x", "args": ["\${cmd:id}", "\${secret:a}"]}}, "secrets": {"commands": true}}`;
    const { manifest } = await loadText(text, "a.json");
    const schemes: SchemeResolvers = new Map([["cmd", () => assert.fail("it was asked")]]);
    const run = resolveServer(getServer(manifest, "s"), {}, "/", schemes);
    await assert.rejects(run, { code: "notSupported" });
  });

  it("with a quote that does not end is refused", async () => {
    const text = `${SERVER}args = ["\${cmd:pass 'x}"]\n[secrets]\ncommands = true`;
    const [found = ""] = await findProblems(text);
    assert.match(found, /found \$\{cmd:…\} with a quote/);
  });

  for (const [text, words] of [
    ["pass show x", ["pass", "show", "x"]],
    ["  op   read\t'op://a b/c'  ", ["op", "read", "op://a b/c"]],
    [`a "b c" 'd"e' "f\\"g\\\\h\\n"`, ["a", "b c", 'd"e', 'f"g\\h\\n']],
    [`a b\\ c '' ""`, ["a", "b c", "", ""]],
    [`x="y z"'w'`, [`x=y zw`]],
    ["a $(b) `c` | d > e; f & *", ["a", "$(b)", "`c`", "|", "d", ">", "e;", "f", "&", "*"]],
    ...["'", `a "b`, "a \\", " ", "'' a"].map((wrong) => [wrong, undefined] as const),
  ] as const) {
    it(`splits ${JSON.stringify(text)} into words without a shell`, () => {
      assert.deepEqual(splitCommand(text), words);
    });
  }
});

describe("${secret:NAME}", () => {
  for (const name of ["a b", "a:b", "ä", "a$", "x".repeat(201)]) {
    it(`is refused with the name ${name.slice(0, 9)}`, async () => {
      const [found = ""] = await findProblems(`${SERVER}args = ["\${secret:${name}}"]`);
      assert.match(found, /found \$\{secret:…\} with an invalid name/);
    });
  }

  it("is listed once for each server", async () => {
    const text = `${SERVER}args = ["\${secret:a/b.c-d_1}\${secret:z}"]\nenv.A = "\${secret:z}"`;
    const { manifest } = await loadText(text);
    assert.deepEqual(listSecrets(getServer(manifest, "s")), ["a/b.c-d_1", "z"]);
  });

  it("makes an error that names all that are missing, in words and as data", async () => {
    const { manifest } = await loadText(`${SERVER}args = ["\${secret:a}"]\nenv.A = "\${secret:b}"`);
    const missing = (name: string): HubError =>
      new HubError("valueMissing", `no ${name}`, { data: { secrets: [name] } });
    const schemes: SchemeResolvers = new Map([["secret", (name) => Promise.reject(missing(name))]]);
    await assert.rejects(resolveServer(getServer(manifest, "s"), {}, "/", schemes), {
      code: "valueMissing",
      step: "resolve",
      data: { secrets: ["a", "b"] },
      message:
        'server "s" cannot be started: args[0] needs ${secret:a}: no a; env.A needs ${secret:b}: no b',
    });
  });

  it("is tried again when its store is only busy", async () => {
    const { manifest } = await loadText(`${SERVER}args = ["\${secret:a}"]`);
    const later = new HubError("storeBusy", "later");
    const schemes: SchemeResolvers = new Map([["secret", () => Promise.reject(later)]]);
    const run = resolveServer(getServer(manifest, "s"), {}, "/", schemes);
    await assert.rejects(run, { code: "storeBusy" });
  });

  it("hides a value as short as a PIN, and no shorter one", async () => {
    const { manifest } = await loadText(`${SERVER}args = ["\${secret:1234}", "\${secret:123}"]`);
    const schemes: SchemeResolvers = new Map([["secret", (name) => Promise.resolve(name)]]);
    const { secrets } = await resolveServer(getServer(manifest, "s"), {}, "/", schemes);
    assert.deepEqual(secrets, ["1234"]);
  });
});
