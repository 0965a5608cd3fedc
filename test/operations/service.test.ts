import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { VERSION } from "../../src/base/version.ts";
import {
  checkService,
  commandInUnit,
  installService,
  readServiceLog,
  removeService,
  serviceStatus,
  unitText,
} from "../../src/operations/service.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";

const NOTHING = { config: [] };
const SHARED = { http: undefined };

/**
 * Writes a program that records its arguments and fails if they match `fails`, and prints `said` if they match `answers`.
 */
async function writeProgram(
  file: string,
  record: string,
  { fails = "no such", answers = "no such", said = "" } = {},
): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  const lines = [
    "#!/bin/sh",
    `echo "\${0##*/} $*" >> '${record}'`,
    `env | cut -d= -f1 >> '${record}.env'`,
    `case "$*" in *"${answers}"*) cat <<'END'`,
    said,
    "END",
    ";; esac",
    `case "$*" in *"${fails}"*) echo "Failed to connect to bus" >&2; exit 1;; esac`,
  ];
  await writeFile(file, `${lines.join("\n")}\n`);
  await chmod(file, 0o755);
}

type Behavior = Parameters<typeof writeProgram>[2];

/** A system with a fake service manager. */
async function fakeSystem(folder: ManifestFolder, platform: string, behavior: Behavior = {}) {
  const programs = join(folder.home, "programs");
  const record = join(folder.home, "record");
  for (const name of ["systemctl", "launchctl", "journalctl"])
    await writeProgram(join(programs, name), record, behavior);
  const env = {
    HOME: folder.home,
    PATH: `${programs}:/usr/bin:/bin`,
    TOOLMUX_SECRET_X: "s3cret",
    API_TOKEN: "s3cret",
  };
  return {
    context: contextOf(env, folder.cwd, platform),
    /** The commands that were run since the last time. */
    async commands(): Promise<readonly string[]> {
      const text = await readFile(record, "utf8").catch(() => "");
      await writeFile(record, "");
      return text.trim().split("\n").filter(Boolean);
    },
    names: async () => new Set((await readFile(`${record}.env`, "utf8")).split("\n")),
  };
}

const unitFile = (folder: ManifestFolder): string =>
  join(folder.home, ".config/systemd/user/toolmux.service");
const agentFile = (folder: ManifestFolder): string =>
  join(folder.home, "Library/LaunchAgents/io.toolmux.hub.plist");

/** The words that make quoting hard. */
const WORDS = [
  "/opt/a b/too$HOME%h&mux",
  "daemon",
  "run",
  "--config",
  "/x/ä &<>$$ %n \\ \"q\" 'q'",
  "100%",
];

describe("a unit", () => {
  for (const manager of ["systemd", "launchd"] as const) {
    it(`of ${manager} has the command as it is, and no variable of the environment`, () => {
      const text = unitText(manager, WORDS, "/x/a & b.log");
      assert.deepEqual(commandInUnit(text), WORDS);
      assert.doesNotMatch(text, /^Environment|PassEnvironment|EnvironmentVariables/m);
    });

    it(`of ${manager} is not made of a word with a control character`, () => {
      for (const word of ["a\nExecStartPre=/bin/evil", "a\0", "\u001b[1m", "\u0085"])
        assert.throws(() => unitText(manager, ["/x/toolmux", word], ""), { code: "usage" });
    });
  }

  it("of systemd is not made of an executable that systemd refuses", () => {
    for (const path of ["/a'b/toolmux", '/a"b/toolmux', "/a\\b/toolmux"])
      assert.throws(() => unitText("systemd", [path, "daemon"], ""), { code: "usage" });
  });

  itIn(
    "of systemd is one in which systemd finds no fault",
    async (folder) => {
      const bin = await folder.write("my $bin/100% too&mux", "#!/bin/sh\n");
      await chmod(bin, 0o755);
      for (const args of [["daemon", "run", "--no-linger"], WORDS]) {
        const file = await folder.write(
          "units/toolmux.service",
          unitText("systemd", [bin, ...args], ""),
        );
        const runtime = join(folder.home, "runtime");
        await mkdir(runtime, { recursive: true, mode: 0o700 });
        const env = { ...process.env, XDG_RUNTIME_DIR: runtime };
        const verify = ["verify", "--user", "--man=no", file];
        const { stdout, stderr, status } = spawnSync("systemd-analyze", verify, { env });
        assert.deepEqual([String(stdout), String(stderr), status], ["", "", 0]);
      }
    },
    {
      skip: skipWithout({
        isMet: missingPrograms(["systemd-analyze"]).length === 0,
        tests: "systemd's own check of the unit",
        remedy: "install systemd (systemd-analyze)",
      }),
    },
  );

  const parser = [
    ["plutil", ["-convert", "json", "-o", "-"]],
    ["plistutil", ["-f", "json", "-o", "-", "-i"]],
    [
      "python3",
      ["-c", "import json,plistlib,sys; print(json.dumps(plistlib.load(open(sys.argv[1],'rb'))))"],
    ],
  ] as const;
  const found = parser.find(([name]) => missingPrograms([name]).length === 0);
  itIn(
    "of launchd is a property list with the keys of launchd",
    async (folder) => {
      const file = await folder.write("a.plist", unitText("launchd", WORDS, "/x/a & b.log"));
      const [program = "", args = []] = found ?? [];
      const read = JSON.parse(String(execFileSync(program, [...args, file]))) as unknown;
      assert.deepEqual(read, {
        Label: "io.toolmux.hub",
        ProgramArguments: WORDS,
        RunAtLoad: true,
        KeepAlive: { SuccessfulExit: false },
        ProcessType: "Background",
        ExitTimeOut: 5,
        Umask: 0o077,
        StandardErrorPath: "/x/a & b.log",
      });
    },
    {
      skip: skipWithout({
        isMet: found !== undefined,
        tests: "the property list of launchd",
        remedy: "install plistutil (libplist-utils) or python3",
      }),
    },
  );
});

describe("a service of systemd", () => {
  itIn("is installed, shown and removed, and then nothing of it is left", async (folder) => {
    const { context, commands, names } = await fakeSystem(folder, "linux");
    const before = await readdir(folder.home);
    const document = await installService(SHARED, NOTHING, context);
    const file = unitFile(folder);
    assert.deepEqual([document.file, document.changed], [file, true]);
    assert.deepEqual(await commands(), [
      "systemctl --user daemon-reload",
      "systemctl --user enable --now toolmux.service",
    ]);
    assert.equal((await stat(file)).mode & 0o077, 0);
    const text = await readFile(file, "utf8");
    const words = ["daemon", "run", "--no-linger", "--wait"];
    assert.deepEqual(commandInUnit(text).slice(-4), words);
    assert.ok(!text.includes("s3cret"));
    const lines = [
      "ExecReload=/bin/kill -HUP $MAINPID",
      "Restart=on-failure",
      "RestartSec=1",
      "KillMode=mixed",
      "TimeoutStopSec=5",
      "UMask=0077",
      "WantedBy=default.target",
    ];
    assert.deepEqual(
      lines.filter((line) => !text.split("\n").includes(line)),
      [],
    );
    assert.ok((await names()).has("API_TOKEN") && !(await names()).has("TOOLMUX_SECRET_X"));
    assert.ok((await names()).has("XDG_RUNTIME_DIR"));

    assert.equal((await installService(SHARED, NOTHING, context)).changed, false);
    await commands();
    // systemd makes this link.
    const wants = join(dirname(file), "default.target.wants");
    await mkdir(wants);
    await symlink(file, join(wants, "toolmux.service"));
    assert.equal((await removeService(context)).changed, true);
    assert.deepEqual(await commands(), [
      "systemctl --user disable --now toolmux.service",
      "systemctl --user daemon-reload",
      "systemctl --user reset-failed toolmux.service",
    ]);
    assert.ok(!existsSync(dirname(dirname(file))));
    const after = await readdir(folder.home);
    assert.deepEqual(
      after.filter((name) => !/^record|^\.config$/.test(name)),
      before,
    );
    assert.equal((await removeService(context)).changed, false);
  });

  itIn("serves over HTTP and with the named manifests, and is restarted then", async (folder) => {
    const { context, commands } = await fakeSystem(folder, "linux");
    await installService(SHARED, NOTHING, context);
    await commands();
    const http = { http: "127.0.0.1:8700" };
    await installService(http, { config: ["a.toml", "~/b c.toml"] }, context);
    assert.equal((await commands()).at(-1), "systemctl --user restart toolmux.service");
    const command = commandInUnit(await readFile(unitFile(folder), "utf8"));
    const files = ["--config", join(folder.cwd, "a.toml"), "--config", `${folder.home}/b c.toml`];
    assert.deepEqual(command.slice(-7), ["serve", "--http", "127.0.0.1:8700", ...files]);
  });

  itIn("does not touch a unit that toolmux has not written", async (folder) => {
    const { context, commands } = await fakeSystem(folder, "linux");
    const own = await folder.write("elsewhere", "[Service]\nExecStart=/bin/true\n");
    const file = await folder.write("home/.config/systemd/user/toolmux.service", "[Service]\n");
    await assert.rejects(installService(SHARED, NOTHING, context), { code: "usage" });
    await assert.rejects(removeService(context), { code: "usage" });
    assert.equal((await serviceStatus(context)).unit, "foreign");
    assert.equal(await readFile(file, "utf8"), "[Service]\n");
    await folder.write("home/.config/systemd/user/toolmux.service", "");
    const { rm } = await import("node:fs/promises");
    await rm(file);
    await symlink(own, file);
    await assert.rejects(installService(SHARED, NOTHING, context), { code: "usage" });
    await assert.rejects(removeService(context), { code: "usage" });
    assert.match(await readFile(own, "utf8"), /ExecStart=\/bin\/true/);
    assert.deepEqual(await commands(), []);
    assert.equal(await checkService(context), undefined);
  });

  itIn("leaves nothing if systemd cannot be asked", async (folder) => {
    const { context } = await fakeSystem(folder, "linux", { fails: "enable" });
    const installing = installService(SHARED, NOTHING, context);
    await assert.rejects(
      installing,
      (error: { code?: string; message?: string; hint?: string }) => {
        assert.equal(error.code, "notSupported");
        assert.match(error.message ?? "", /Failed to connect to bus/);
        return true;
      },
    );
    assert.ok(!existsSync(dirname(dirname(unitFile(folder)))));
    const bare = contextOf({ HOME: folder.home, PATH: folder.cwd }, folder.cwd);
    await assert.rejects(installService(SHARED, NOTHING, bare), { code: "notSupported" });
    assert.ok(!existsSync(dirname(dirname(unitFile(folder)))));
  });

  itIn("keeps the unit from before if the new one cannot be started", async (folder) => {
    const { context } = await fakeSystem(folder, "linux", { fails: "restart" });
    await installService(SHARED, NOTHING, context);
    const before = await readFile(unitFile(folder), "utf8");
    const http = installService({ http: "127.0.0.1:1" }, NOTHING, context);
    await assert.rejects(http, { code: "notSupported" });
    assert.equal(await readFile(unitFile(folder), "utf8"), before);
  });

  itIn("is shown as systemd knows it, with its log", async (folder) => {
    const said = "MainPID=4711\nActiveState=active\nUnitFileState=enabled";
    const { context, commands } = await fakeSystem(folder, "linux", { answers: "show", said });
    assert.deepEqual((await serviceStatus(context)).unit, "absent");
    assert.deepEqual(await commands(), []);
    await installService(SHARED, NOTHING, context);
    const { unit, state, enabled, pid } = await serviceStatus(context);
    assert.deepEqual([unit, state, enabled, pid], ["installed", "active", true, 4711]);
    await commands();
    assert.deepEqual(await readServiceLog(context), []);
    const [read = ""] = await commands();
    assert.ok(read.startsWith("journalctl --user --unit toolmux.service --no-pager"), read);
  });
});

describe("a service of launchd", () => {
  itIn("is installed, shown and removed, and then nothing of it is left", async (folder) => {
    const said = "gui/501/io.toolmux.hub = {\n\tstate = running\n\tpid = 4711\n}";
    const { context, commands } = await fakeSystem(folder, "darwin", { answers: "print", said });
    const domain = `gui/${process.getuid?.()}`;
    const file = agentFile(folder);
    await installService(SHARED, NOTHING, context);
    assert.deepEqual(await commands(), [`launchctl bootstrap ${domain} ${file}`]);
    const { unit, state, pid } = await serviceStatus(context);
    assert.deepEqual([unit, state, pid], ["installed", "active", 4711]);
    const log = join(folder.home, "Library/Application Support/toolmux/logs/service.log");
    await writeFile(log, "one\ntwo\n");
    assert.deepEqual(await readServiceLog(context), ["one", "two"]);
    await commands();
    await installService({ http: "127.0.0.1:8700" }, NOTHING, context);
    assert.deepEqual(await commands(), [
      `launchctl bootout ${domain}/io.toolmux.hub`,
      `launchctl bootstrap ${domain} ${file}`,
    ]);
    await removeService(context);
    assert.deepEqual(await commands(), [`launchctl bootout ${domain}/io.toolmux.hub`]);
    assert.ok(!existsSync(file) && !existsSync(log));
  });
});

describe("a service elsewhere", () => {
  for (const platform of ["win32", "freebsd"]) {
    itIn(`is refused with what to run by hand: ${platform}`, async (folder) => {
      const context = contextOf({ HOME: folder.home, PATH: "/usr/bin" }, folder.cwd, platform);
      for (const act of [
        () => installService(SHARED, NOTHING, context),
        () => removeService(context),
        () => serviceStatus(context),
        () => readServiceLog(context),
      ])
        await assert.rejects(act, { code: "notSupported" });
      assert.equal(await checkService(context), undefined);
    });
  }
});

describe("the executable of a service", () => {
  const cases: readonly (readonly [
    what: string,
    version: string | undefined,
    fault: RegExp | undefined,
  ])[] = [
    ["that does not exist is told", undefined, /does not exist/],
    ["that is older is told", "0.0.9", /toolmux 0\.0\.9/],
    ["that is no toolmux is told", "", /cannot be run/],
    ["of the same version is fine", VERSION, undefined],
    ["that is newer is fine", "999.0.0", undefined],
  ];
  for (const [what, version, fault] of cases) {
    itIn(what, async (folder) => {
      const { context } = await fakeSystem(folder, "linux");
      const program = join(folder.home, "old", "toolmux");
      if (version !== undefined) {
        const said = version === "" ? "hello" : `toolmux ${version} (bun, linux x64)`;
        await writeProgram(program, join(folder.home, "calls"), { answers: "version", said });
      }
      await installService(SHARED, NOTHING, context);
      const file = unitFile(folder);
      await writeFile(file, unitText("systemd", [program, "daemon", "run"], ""));
      assert.equal((await checkService(context))?.file, fault && file);
      const { fault: text } = await serviceStatus(context);
      if (fault === undefined) assert.equal(text, undefined);
      else assert.match(text ?? "", fault);
    });
  }
});
