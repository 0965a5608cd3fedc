import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type TestFolder, executable, itWith, withTestFolder } from "../harness/hub.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";

/** What a session with a keychain needs, wherever PATH has it. */
const PARTS = ["dbus-run-session", "gnome-keyring-daemon"];
const skip = skipWithout({
  isMet: missingPrograms(PARTS).length === 0,
  tests: "the keychain",
  remedy: `there is no ${PARTS.join(", or no ")} (apt-get install dbus gnome-keyring libsecret-1-0)`,
});

/**
 * Runs lines of a shell in a D-Bus session of its own, in which a keychain is there and unlocked, or locked, or not there.
 * `$T` is the executable.
 */
function runSession(
  setup: TestFolder,
  keychain: "unlocked" | "locked" | "none",
  ...lines: string[]
) {
  const daemon = "gnome-keyring-daemon --components=secrets --daemonize";
  const start = {
    unlocked: `printf pw | ${daemon} --unlock >/dev/null 2>&1`,
    locked: `${daemon} >/dev/null 2>&1`,
    none: "true",
  }[keychain];
  const script = [start, ...lines].join("\n");
  const { stdout, stderr, status } = spawnSync("dbus-run-session", ["--", "sh", "-c", script], {
    cwd: setup.dir,
    env: { ...setup.env, T: executable() },
    encoding: "utf8",
    timeout: 40_000,
  });
  return { stdout, stderr, status };
}

/** Of each test: a file whose tests are skipped as a whole reports none. */
const it = itWith({ skip });

describe("the keychain of this system", () => {
  it("is where the key of a secret is that a server is given", () =>
    withTestFolder({ servers: {} }, (setup) => {
      writeFileSync(
        setup.config,
        `[servers.s]\ncommand = "sh"\nargs = ["-c", "[ \\"$TOKEN\\" = can''ary-value ] && touch was-there; exit 1"]\nenv.TOKEN = "\${secret:a/token}"\n`,
      );
      const { stdout, stderr } = runSession(
        setup,
        "unlocked",
        `echo canary-value | $T secret set a/token`,
        `$T secret list --json --config ${setup.config}`,
        `$T status --config ${setup.config} | head -0`,
        `$T secret remove a/token`,
        `$T secret remove a/token || echo "again: $?"`,
        `$T check --config ${setup.config}`,
      );
      assert.match(stdout, /stored a\/token in /);
      assert.match(stdout, /"places": \[\s*"file"\s*\]/);
      assert.match(stdout, /"key": "keychain"/);
      assert.match(stdout, /removed a\/token from /);
      assert.match(stdout, /again: 1/);
      assert.match(stdout, /a\/token +nowhere +s/);
      assert.ok(existsSync(join(setup.dir, "was-there")), stderr);
      assert.ok(!(stdout + stderr).includes("canary"));
      return Promise.resolve();
    }));

  it("keeps the key of the file, which is worth nothing without it", () =>
    withTestFolder({ servers: {} }, (setup) => {
      const folder = join(setup.dir, "config", "toolmux", "secrets");
      const kept = runSession(
        setup,
        "unlocked",
        "echo canary-value | $T secret set x",
        "echo another | $T secret set y",
        "$T secret list --json",
      );
      assert.match(kept.stdout, /"key": "keychain"/);
      assert.doesNotMatch(kept.stderr, /same directory/);
      assert.deepEqual(readdirSync(folder), ["values"]);
      const before = readFileSync(join(folder, "values"));
      for (const keychain of ["locked", "none"] as const) {
        const { stdout, stderr } = runSession(
          setup,
          keychain,
          'echo z | $T secret set z; echo "code $?"',
          "$T secret list; echo $?",
        );
        assert.match(stdout, /code 3/);
        assert.match(stderr, /its key is missing/);
        assert.ok(readFileSync(join(folder, "values")).equals(before));
        assert.deepEqual(readdirSync(folder), ["values"]);
      }
      const again = runSession(setup, "unlocked", "$T secret list --json");
      assert.match(again.stdout, /"x"[^]*"y"/);
      return Promise.resolve();
    }));

  it("that is locked, or not there, makes the key lie beside a new file, and that is said", async () => {
    for (const keychain of ["locked", "none"] as const) {
      await withTestFolder({ servers: {} }, (setup) => {
        const { stdout, stderr } = runSession(setup, keychain, "echo a-value | $T secret set x");
        assert.match(stdout, /stored x in /);
        assert.match(stderr, /in the same directory/);
        return Promise.resolve();
      });
    }
  });
});
