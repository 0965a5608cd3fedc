import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import { describe, it } from "node:test";
import { findHomeFolder, homeFolder, stateFolder } from "../../src/base/paths.ts";

const PATHS = new URL("../../src/base/paths.ts", import.meta.url).href;
/** A user id that no user database has. */
const UNKNOWN_USER = 54321;

describe("the home folder", () => {
  it("is HOME, if that is absolute", () => {
    assert.equal(homeFolder({ HOME: "/h" }), "/h");
    assert.equal(findHomeFolder({ HOME: "relative" }), findHomeFolder({}));
  });

  const skip = process.getuid?.() === 0 ? false : "only root can take another user id";
  it(
    "of a user id without an entry and without HOME is unknown, which one line says",
    { skip },
    () => {
      const script = `const { findHomeFolder, homeFolder, stateFolder } = await import(${JSON.stringify(PATHS)});
      const given = stateFolder({ XDG_STATE_HOME: "/s" }, "linux");
      let error;
      try { homeFolder({}); } catch (thrown) { error = [thrown.code, thrown.message]; }
      console.log(JSON.stringify([findHomeFolder({}) ?? null, given, error]));`;
      const evaluate = `process.setgid(${UNKNOWN_USER}); process.setuid(${UNKNOWN_USER});\n${script}`;
      const { stdout } = spawnSync(process.execPath, ["-e", evaluate], {
        env: {},
        encoding: "utf8",
      });
      const [home, given, [code, message]] = JSON.parse(stdout) as [null, string, [string, string]];
      assert.deepEqual([home, given, code], [null, "/s/toolmux", "valueMissing"]);
      assert.match(message, /^[^\n]*set HOME[^\n]*$/);
    },
  );

  it("is not needed where the folders of toolmux are given", () => {
    assert.equal(stateFolder({ XDG_STATE_HOME: "/s" }, "linux"), "/s/toolmux");
  });
});
