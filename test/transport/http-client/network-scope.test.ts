import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { hostname } from "node:os";
import { describe, it } from "node:test";
import {
  LINK_LOCAL,
  LOOPBACK,
  networkScopeOf,
  PRIVATE,
  PUBLIC,
  resolveScopes,
} from "../../../src/transport/http-client/network-scope.ts";
import { openSocket } from "../../../src/transport/http-client/open-socket.ts";

const SCOPES: Readonly<Record<string, readonly string[]>> = {
  [PUBLIC]: ["example.com", "8.8.8.8", "172.15.0.1", "[2606:4700::1111]", "[::ffff:8.8.8.8]"],
  [PRIVATE]: [
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "[fd00::1]",
    "[fc00::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::a00:1]",
    "[64:ff9b:1::1]",
    "[2002:a00:1::]",
    "0xa.1",
    "012.0.0.1",
    "167772161",
  ],
  [LOOPBACK]: [
    "localhost",
    "localhost.",
    "a.localhost",
    "127.0.0.1",
    "127.1",
    "127.255.255.255",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "0177.0.0.1",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
  ],
  [LINK_LOCAL]: [
    "0.0.0.0",
    "0",
    "169.254.169.254",
    "169.254.1.1",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "100.100.100.200",
    "[fe80::1]",
    "[febf::1]",
    "[::]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[fd00:ec2::254]",
  ],
};

describe("the network scope of a host", () => {
  for (const [scope, hosts] of Object.entries(SCOPES)) {
    it(`is ${scope} for each spelling of such an address`, () => {
      for (const host of hosts)
        assert.equal(networkScopeOf(new URL(`http://${host}/`).hostname), Number(scope), host);
    });
  }

  it("counts for the spellings of look-ups, too", () => {
    for (const [address, scope] of [
      ["::ffff:127.0.0.1", LOOPBACK],
      ["fe80::1%eth0", LINK_LOCAL],
      ["0000:0000:0000:0000:0000:0000:0000:0001", LOOPBACK],
      ["not:an:address", LINK_LOCAL],
    ] as const)
      assert.equal(networkScopeOf(address), scope, address);
  });
});

async function withServer(run: (server: Server, port: number) => Promise<void>): Promise<void> {
  const server = createServer((_, response) => response.end());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await run(server, (server.address() as AddressInfo).port);
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

const NEVER = new AbortController().signal;

describe("a connection with a narrowest scope", () => {
  it("is not opened to a narrower address, under whichever name, and is opened to one of that scope", () =>
    withServer(async (server, port) => {
      let count = 0;
      server.on("connection", () => count++);
      // The name of this machine leads to an address of it, which its text does not say.
      const own = (await resolveScopes(hostname())).some(({ scope }) => scope > PUBLIC);
      const hosts = ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"];
      for (const host of own ? [...hosts, hostname()] : hosts) {
        for (const protocol of ["http", "https"]) {
          const url = new URL(`${protocol}://${host}:${port}/`);
          const options = { ca: undefined, env: {}, allowedScope: PUBLIC };
          await assert.rejects(openSocket(url, options, NEVER), { code: "serverRefused" }, host);
        }
      }
      assert.equal(count, 0);
      const url = new URL(`http://localhost:${port}/`);
      const options = { ca: undefined, env: {}, allowedScope: LOOPBACK };
      const { socket } = await openSocket(url, options, NEVER).catch((error: unknown) => {
        assert.fail(String(error));
      });
      socket.destroy();
    }));

  it("may go through a proxy of any scope, but not to a narrower address by its text", () =>
    withServer(async (_, port) => {
      const env = { http_proxy: `http://127.0.0.1:${port}` };
      const options = { ca: undefined, env, allowedScope: PUBLIC };
      const { socket } = await openSocket(new URL("http://example.com/"), options, NEVER);
      socket.destroy();
      const metadata = new URL("http://169.254.169.254/latest/");
      await assert.rejects(openSocket(metadata, options, NEVER), { code: "serverRefused" });
    }));
});
