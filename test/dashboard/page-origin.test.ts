import assert from "node:assert/strict";
import { networkInterfaces, tmpdir } from "node:os";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { makeDashboard } from "../../src/dashboard/dashboard.ts";
import {
  listenOnLoopback,
  openPageOrigin,
  type PageOrigin,
} from "../../src/dashboard/page-origin.ts";
import { findDashboard, registerDashboard } from "../../src/dashboard/running-dashboard.ts";
import { listen } from "../../src/frontend/http/listener.ts";

const PAGE = {
  "index.html": "<!doctype html>",
  "page.js": "1",
  "usage-0a1b2c3d.js": "2",
  "page.css": "a{}",
};
const HUBS = { list: () => Promise.resolve([]), forward: () => Promise.reject(new Error("none")) };
const NO_IPV6 =
  !Object.values(networkInterfaces()).some((all) =>
    all?.some(({ address }) => address === "::1"),
  ) && "NOT TESTED: this machine has no IPv6 loopback address";

/** Serves a dashboard as the command does on a platform. */
async function withDashboard(
  platform: string,
  run: (about: {
    readonly origin: PageOrigin;
    readonly port: number;
    readonly statusAt: (host: string, port: number) => Promise<number>;
    readonly isFound: () => Promise<string | undefined>;
  }) => Promise<void>,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "toolmux-origin-"));
  const places = { env: { ...env, HOME: folder, XDG_STATE_HOME: folder }, platform };
  const origin = await openPageOrigin(places, (request, info) => dashboard.fetch(request, info));
  const dashboard = makeDashboard({ base: "", origin, hubs: HUBS, page: async () => PAGE });
  const listener = await listenOnLoopback(0, (request, info) => dashboard.fetch(request, info));
  const { port } = listener;
  const withdraw = await registerDashboard(
    dashboard,
    { url: origin.urlOf(port, "/"), port },
    places,
  );
  const statusAt = async (host: string, at: number): Promise<number> => {
    const headers = { Host: host };
    return (await fetch(`http://127.0.0.1:${at}/page.js`, { headers })).status;
  };
  try {
    const isFound = async (): Promise<string | undefined> =>
      (await findDashboard(port, places))?.url;
    await run({ origin, port, statusAt, isFound });
  } finally {
    await withdraw();
    dashboard.close();
    await Promise.all([listener.close(0), origin.close(0)]);
    await rm(folder, { recursive: true });
  }
}

const codeOf = (error: unknown): unknown => (error as { code?: unknown }).code;

describe("the origin of the dashboard's page", () => {
  for (const [platform, env] of [
    ["linux", {}],
    ["win32", {}],
    ["darwin", { SSH_CONNECTION: "10.0.0.1 5 10.0.0.2 22" }],
  ] as const) {
    it(`is a random name below localhost with the dashboard's port on ${platform}${"SSH_CONNECTION" in env ? " over ssh" : ""}`, () =>
      withDashboard(
        platform,
        async ({ origin, port, statusAt, isFound }) => {
          const { hostname, host } = new URL(origin.urlOf(port, "/"));
          assert.match(hostname, /^[0-9a-f]{32}\.localhost$/);
          assert.equal(host, `${hostname}:${port}`);
          assert.equal(await statusAt(host, port), 200);
          assert.equal(await statusAt(`${hostname}:9000`, port), 200, "a port that ssh forwards");
          for (const other of [`127.0.0.1:${port}`, `localhost:${port}`, `x${host}`])
            assert.equal(await statusAt(other, port), 403, other);
          assert.ok((await isFound())?.startsWith(`http://${host}/#token=`));
        },
        env,
      ));
  }

  it("is a random port of 127.0.0.1 on macOS, where the dashboard's port only says how to get a link", () =>
    withDashboard("darwin", async ({ origin, port, statusAt, isFound }) => {
      const { hostname, host, port: own } = new URL(origin.urlOf(port, "/"));
      assert.equal(hostname, "127.0.0.1");
      assert.notEqual(Number(own), port);
      assert.equal(await statusAt(host, Number(own)), 200);
      assert.equal(await statusAt(`127.0.0.1:${port}`, port), 403);
      assert.equal(await statusAt(`localhost:${own}`, Number(own)), 403);
      assert.ok((await isFound())?.startsWith(`http://${host}/#token=`));
    }));

  it("is another one at each start", async () => {
    const places = { env: {}, platform: "linux" };
    const all = await Promise.all(
      Array.from({ length: 50 }, () => openPageOrigin(places, () => assert.fail())),
    );
    assert.equal(new Set(all.map((origin) => origin.urlOf(1, "/"))).size, 50);
  });

  it(
    "is refused where another process has the port at the other loopback address",
    { skip: NO_IPV6 },
    async () => {
      const answer = () => Promise.resolve(Response.json({ token: "t", proof: "p" }));
      // The port may have another owner at 127.0.0.1: then another one is tried.
      for (;;) {
        const other = await listen({ address: { hostname: "::1", port: 0 }, fetch: answer });
        try {
          const error = await listenOnLoopback(other.port, answer).then(
            () => assert.fail(),
            codeOf,
          );
          if (error === "EADDRINUSE") continue;
          assert.equal(error, "usage");
          const address = { hostname: "127.0.0.1", port: other.port };
          const free = await listen({ address, fetch: answer });
          await free.close(0);
          return;
        } finally {
          await other.close(0);
        }
      }
    },
  );

  it("is served at both loopback addresses", { skip: NO_IPV6 }, () =>
    withDashboard("linux", async ({ origin, port }) => {
      const { host } = new URL(origin.urlOf(port, "/"));
      const response = await fetch(`http://[::1]:${port}/page.js`, { headers: { Host: host } });
      assert.equal(response.status, 200);
    }),
  );
});
