import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { clientStateOf } from "../../src/manifest/client-state.ts";
import { isRunnable } from "../../src/manifest/manifest.ts";
import { getServer, loadText } from "../fixtures/manifest/manifest-folder.ts";
import { stdioSpecOf } from "../fixtures/memory-hub.ts";

const KEEPS: readonly string[] = [
  "npx -y @playwright/mcp@latest --headless",
  "npx @playwright/mcp",
  "/usr/local/bin/npx --yes --package=@playwright/mcp@0.0.3 mcp",
  "npm exec -- @playwright/mcp",
  "pnpm dlx @playwright/mcp@1",
  "bunx @playwright/mcp",
  "deno run -A npm:@playwright/mcp@1.2.3",
  "sh -c npx\\ -y\\ @playwright/mcp@latest",
  "node ./node_modules/@playwright/mcp/cli.js",
  "node /opt/node_modules/chrome-devtools-mcp/build/src/index.js",
  "/home/me/.local/bin/mcp-server-playwright --port 1",
  "docker run -i --rm mcp/playwright",
  "podman run -i --rm docker.io/mcp/playwright:1.0",
  "docker run -i --rm --init mcr.microsoft.com/playwright/mcp@sha256:abc",
  "npx -y @modelcontextprotocol/server-puppeteer",
  "npx -y @modelcontextprotocol/server-sequential-thinking",
  "docker run --rm -i mcp/sequentialthinking",
  "npx -y @wonderwhy-er/desktop-commander@latest",
  "uvx jupyter-mcp-server@latest",
  "uvx --from mcp-pdb==0.6 mcp-pdb",
  "uvx MCP_pdb",
  "python3.12 -m jupyter_mcp_server",
  "node /srv/desktop-commander.js",
];

const KEEPS_NOTHING: readonly string[] = [
  "npx -y @modelcontextprotocol/server-filesystem /home/@playwright/mcp",
  "npx -y @modelcontextprotocol/server-memory",
  "npx -y playwright-mcp-docs",
  "uvx mcp-server-fetch",
  "uvx mcp-debugger",
  "docker run -i --rm mcp/fetch",
  "node server.js",
  "playwright",
  "sequential-thinking",
  "git",
];

describe("the servers that keep a client's state", () => {
  const stateOf = (line: string): string | undefined => {
    const [command = "", ...args] = line
      .split(/(?<!\\) /)
      .map((word) => word.replaceAll("\\ ", " "));
    return clientStateOf(stdioSpecOf("any", { command, args }));
  };

  for (const line of KEEPS)
    it(`include ${line}`, () => assert.match(stateOf(line) ?? "", /^(a|the|terminal) ?\w/));

  for (const line of KEEPS_NOTHING)
    it(`do not include ${line}`, () => assert.equal(stateOf(line), undefined));

  for (const name of ["npm:@playwright/mcp", "pypi:mcp-pdb==0.6", "docker:mcp/playwright:1"])
    it(`include package = "${name}"`, async () => {
      const { manifest } = await loadText(`[servers.s]\npackage = "${name}"`);
      const server = getServer(manifest, "s");
      assert.ok(isRunnable(server));
      assert.notEqual(clientStateOf(server), undefined);
    });

  it("are not known by the server's name in the manifest", () => {
    assert.equal(clientStateOf(stdioSpecOf("playwright", { command: "other" })), undefined);
  });
});
