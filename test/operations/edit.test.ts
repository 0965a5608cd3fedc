import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { appendFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { SCHEMA_ID } from "../../src/base/homepage.ts";
import { stateFolder } from "../../src/base/paths.ts";
import { isTrusted } from "../../src/manifest/trust.ts";
import { editManifestByHand, editorOf } from "../../src/operations/edit.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

describe("the editor of the user", () => {
  it("is the command line of VISUAL, or else of EDITOR, read without a shell", () => {
    const cases: readonly (readonly [env: Record<string, string>, words: readonly string[]])[] = [
      [{ VISUAL: "code --wait", EDITOR: "vim" }, ["code", "--wait"]],
      [{ VISUAL: "  ", EDITOR: "'/a b/ed' $(x) ;y" }, ["/a b/ed", "$(x)", ";y"]],
      [{}, ["vi"]],
    ];
    for (const [env, words] of cases) assert.deepEqual(editorOf(env, "linux"), words);
    assert.deepEqual(editorOf({}, "win32"), ["notepad"]);
    assert.throws(() => editorOf({ EDITOR: "vim 'x" }, "linux"), { code: "usage" });
  });
});

describe("a manifest that is edited by hand", () => {
  const server = '\n[servers.x]\ncommand = "a"\n';

  itIn(
    "is made with the name of its schema, and is gone again if nothing is added",
    async (folder) => {
      const context = contextOf({ HOME: folder.home }, folder.cwd);
      const file = join(folder.cwd, "new", "toolmux.toml");
      let shown = "";
      const look = async (_: string, args: readonly string[]): Promise<number> => {
        shown = await readFile(args.at(-1) ?? "", "utf8");
        return 0;
      };
      assert.equal(await editManifestByHand(file, look, context), false);
      assert.equal(shown, `#:schema ${SCHEMA_ID}\n`);
      assert.equal(existsSync(file), false);
      const add = (): Promise<number> => appendFile(file, server).then(() => 0);
      assert.equal(await editManifestByHand(file, add, context), true);
      assert.equal(await readFile(file, "utf8"), shown + server);
    },
  );

  itIn("stays trusted if it was, and is not trusted by an edit", async (folder) => {
    const context = contextOf({ HOME: folder.home }, folder.cwd);
    const state = stateFolder(context.env, context.platform);
    for (const wasTrusted of [true, false]) {
      const file = await folder.write(`${wasTrusted}.toml`, server);
      if (wasTrusted) await folder.trust(file, state);
      await editManifestByHand(file, () => appendFile(file, "# more\n").then(() => 0), context);
      assert.equal(await isTrusted(file, await readFile(file), state), wasTrusted);
    }
  });

  itIn("is not checked if the editor fails", async (folder) => {
    const context = contextOf({ HOME: folder.home }, folder.cwd);
    const file = await folder.write("toolmux.toml", server);
    const failing = editManifestByHand(file, () => Promise.resolve(1), context);
    await assert.rejects(failing, { code: "usage" });
  });
});
