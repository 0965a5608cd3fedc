import assert from "node:assert/strict";
import process from "node:process";
import { describe } from "node:test";
import {
  authStatusDocument,
  login,
  type LoginStep,
  logout,
  readAuthStatus,
} from "../../src/operations/login.ts";
import { setUpAuthorization } from "../fixtures/authorization-setup.ts";
import { browse } from "../fixtures/browser.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn, serverTable } from "../harness/in-folder.ts";

/** A manifest with this server over HTTP, and one that is a process. */
async function prepare(folder: ManifestFolder, url: URL) {
  const text = `[servers.club]\nurl = "${url.href}"\n${serverTable("local")}`;
  const choice = { config: [await folder.write("toolmux.toml", text)] };
  const env = { HOME: folder.home, TOOLMUX_KEYCHAIN: "off" };
  const context = contextOf(env, folder.root, process.platform);
  const stateOf = async () => {
    const rows = await readAuthStatus([], choice, context, () => {});
    return rows.map(authStatusDocument);
  };
  return { choice, context, stateOf };
}

const silent = { onStep() {}, onPage() {}, onNote() {} };

describe("a login", () => {
  itIn("tells its steps and its page, and ends when the person has logged in", async (folder) => {
    const { server } = await setUpAuthorization();
    const { choice, context, stateOf } = await prepare(folder, server.url);
    assert.deepEqual(await stateOf(), [{ server: "club", state: "none" }]);
    const steps: (LoginStep | "page")[] = [];
    const pages: Promise<string>[] = [];
    const request = { server: "club", opensBrowser: false };
    const { document, text } = await login(request, choice, context, () => {}, {
      onStep: (step) => void steps.push(step),
      onPage(url) {
        steps.push("page");
        pages.push(browse(url));
      },
      onNote: assert.fail,
    });
    await Promise.all(pages);
    assert.deepEqual(steps, ["asking", "preparing", "page", "waiting"]);
    const { server: name, state, issuer } = document;
    assert.deepEqual([name, state, issuer], ["club", "authorized", server.issuer]);
    assert.match(text, /^authorized/);
    assert.deepEqual(await stateOf(), [document]);
  });

  itIn("is ended by a logout, which is not one the second time", async (folder) => {
    const { server } = await setUpAuthorization();
    const { choice, context, stateOf } = await prepare(folder, server.url);
    const pages: Promise<string>[] = [];
    await login({ server: "club", opensBrowser: false }, choice, context, () => {}, {
      ...silent,
      onPage: (url) => void pages.push(browse(url)),
    });
    await Promise.all(pages);
    const loggedOut = async () => (await logout("club", choice, context, () => {})).loggedOut;
    assert.deepEqual([await loggedOut(), await loggedOut()], [true, false]);
    assert.deepEqual(await stateOf(), [{ server: "club", state: "none" }]);
  });

  itIn("is refused for a server that is unknown or no server over HTTP", async (folder) => {
    const { choice, context } = await prepare(folder, new URL("http://127.0.0.1:1/mcp"));
    for (const [server, message] of [
      ["clob", /Did you mean "club"/],
      ["local", /not reached over HTTP/],
    ] as const) {
      const request = { server, opensBrowser: false };
      const done = login(request, choice, context, () => {}, silent);
      await assert.rejects(done, { code: "usage", message });
    }
  });
});
