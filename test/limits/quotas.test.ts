import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { limitsOn } from "../../src/frontend/clients.ts";
import { diskQuotas } from "../../src/limits/disk-quotas.ts";
import type { QuotaStorage } from "../../src/limits/quota-book.ts";
import { Quota, type StoredQuota } from "../../src/limits/quota.ts";
import type { NamedClient } from "../../src/manifest/named-clients.ts";
import {
  callTool,
  initialize,
  type Json,
  manifestFor,
  type Peer,
  ScriptedServer,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const DAY = 24 * HOUR;
/** 10:30 UTC of a day. */
const START = 20_000 * DAY + 10.5 * HOUR;

const isRefused = ({ result }: Json): boolean =>
  (result?.["_meta"] as Record<string, unknown> | undefined)?.["toolmux/error"] === "overLimit";
const retryAfter = ({ result }: Json): unknown =>
  (result?.["_meta"] as Record<string, unknown> | undefined)?.["toolmux/retryAfterMs"];

interface Settings {
  readonly count?: number;
  readonly per?: number;
  readonly storage?: QuotaStorage;
  /** Added to the time of the system. */
  readonly time?: { offset: number };
}

/** A hub in which client `ci` has a quota, and that client. */
async function open({ count = 5, per = DAY, storage, time = { offset: 0 } }: Settings = {}) {
  const a = new ScriptedServer("x");
  const clients: readonly NamedClient[] = [
    {
      kind: "client",
      name: "ci",
      token: { text: "x", file: "/x", baseDir: "/" },
      mode: undefined,
      servers: undefined,
      approval: undefined,
      sessions: undefined,
      limits: { quota: { count, per } },
    },
  ];
  const manifest = { ...manifestFor({ a }, {}), clients };
  const clock = new VirtualClock();
  const setup = setUpHub(
    { a },
    {
      manifest,
      clock,
      ...(storage && { openQuotas: () => Promise.resolve(storage) }),
      wallNow: () => START + clock.now() + time.offset,
    },
  );
  const ci = setup.connect("http", { ...limitsOn("http"), principal: "ci" });
  await initialize(ci);
  const call = (client: Peer = ci): Promise<Json> => callTool(client, "a__x");
  const callOften = async (times: number): Promise<readonly boolean[]> => {
    const refused: boolean[] = [];
    for (let at = 0; at < times; at++) refused.push(isRefused(await call()));
    return refused;
  };
  const used = (): number | undefined =>
    setup.hub.limits.status.find(({ client }) => client === "ci")?.quota?.used;
  return { ...setup, clock, ci, call, callOften, used };
}

/** Storage in memory that two hubs can share. */
function sharedStorage(): QuotaStorage & { text: string | undefined; updates: number } {
  const shared = {
    manifest: "m",
    text: undefined as string | undefined,
    updates: 0,
    read: () => Promise.resolve(shared.text),
    update: (change: (text: string | undefined) => string) => {
      shared.updates++;
      shared.text = change(shared.text);
      return Promise.resolve();
    },
  };
  return shared;
}

async function inFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-quotas-"));
  try {
    await run(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const storedIn = (folder: string): Readonly<Record<string, StoredQuota>> =>
  (JSON.parse(readFileSync(join(folder, "quotas.json"), "utf8")) as { quotas: never }).quotas;

describe("a quota", () => {
  it("refuses what exceeds it until its window ends, and says for how long", async () => {
    const { callOften, call, clock, events } = await open({ count: 2, per: HOUR });
    assert.deepEqual(await callOften(3), [false, false, true]);
    assert.equal(retryAfter(await call()), HOUR / 2);
    await clock.advanceAsync(HOUR / 2);
    assert.deepEqual(await callOften(3), [false, false, true]);
    const refusals = events.flatMap((event) => (event.kind === "limit" ? [event.limit] : []));
    assert.deepEqual(refusals, ["quota", "quota"]);
  });

  it("counts from the first of the hour and of the UTC day, and 30 days from the first call", () => {
    for (const [per, end] of [
      [HOUR, START + HOUR / 2],
      [DAY, START + 13.5 * HOUR],
      [30 * DAY, START + 30 * DAY],
    ] as const) {
      const quota = new Quota("q", { count: 1, per });
      assert.equal(quota.end(START), undefined);
      quota.take(START);
      assert.equal(quota.end(START), end);
      assert.equal(quota.wait(START), end - START);
      assert.equal(quota.wait(end), 0);
    }
  });

  it("raises an alert at 80 %, another one when all are used, and none in the next window", async () => {
    const { callOften, clock, hub, events } = await open({ count: 5 });
    const alerts = () => hub.snapshot().alerts.map(({ kind, client }) => [kind, client]);
    await callOften(3);
    assert.deepEqual(alerts(), []);
    await callOften(1);
    assert.deepEqual(alerts(), [["quota", "ci"]]);
    const [nearly] = hub.snapshot().alerts;
    assert.match(nearly?.text ?? "", /^Client "ci": 80 % of 5 calls a day are used\. .* UTC\.$/);
    await callOften(2);
    const [all] = hub.snapshot().alerts;
    assert.equal(all?.id, nearly?.id);
    assert.match(all?.text ?? "", /: all of 5 calls a day are used\..* refused\.$/);
    await clock.advanceAsync(DAY);
    await callOften(1);
    assert.deepEqual(alerts(), []);
    const raised = events.flatMap((event) => (event.kind === "alert" ? [event.raised] : []));
    assert.deepEqual(raised, [true, true, false]);
  });

  it("is counted anew after a reset, also in the storage", async () => {
    const storage = sharedStorage();
    const { callOften, hub, used } = await open({ count: 2, storage });
    await callOften(3);
    assert.equal(await hub.limits.reset("ci"), undefined);
    assert.equal(used(), 0);
    assert.deepEqual(await callOften(3), [false, false, true]);
    assert.deepEqual(await hub.limits.reset("nobody"), ["ci"]);
  });

  it("that was reset in one hub counts anew in others, too", async () => {
    for (const per of [HOUR, 30 * DAY]) {
      const storage = sharedStorage();
      const [one, two] = [
        await open({ count: 2, per, storage }),
        await open({ count: 2, per, storage }),
      ];
      await one.callOften(2);
      for (const hub of [one, two]) await hub.clock.advanceAsync(10 * SECOND);
      assert.deepEqual(await two.callOften(1), [true]);
      // While an exchange goes on.
      one.clock.advanceTo(20 * SECOND);
      await one.hub.limits.reset("ci");
      await two.clock.advanceAsync(10 * SECOND);
      assert.deepEqual([one.used(), two.used()], [0, 0]);
      assert.deepEqual(await two.callOften(3), [false, false, true]);
      await one.clock.advanceAsync(10 * SECOND);
      assert.equal(one.used(), 0);
      await two.hub.close();
      await one.clock.advanceAsync(10 * SECOND);
      assert.equal(one.used(), 2);
    }
  });

  it("keeps its calls across a restart, in a file of its owner alone", async () => {
    await inFolder(async (folder) => {
      const first = await open({ count: 5, storage: diskQuotas(folder, "m") });
      await first.callOften(3);
      await first.hub.close();
      const [[key, stored] = []] = Object.entries(storedIn(folder));
      assert.equal(key, 'm ["clients","ci"]');
      assert.deepEqual(stored, { start: 20_000 * DAY, per: DAY, used: 3 });
      const second = await open({ count: 5, storage: diskQuotas(folder, "m") });
      assert.deepEqual(await second.callOften(3), [false, false, true]);
      await second.hub.close();
      // Another manifest has quotas of its own.
      const other = await open({ count: 5, storage: diskQuotas(folder, "n") });
      assert.deepEqual(await other.callOften(1), [false]);
      await other.hub.close();
      assert.deepEqual(
        Object.values(storedIn(folder)).map(({ used }) => used),
        [5, 1],
      );
    });
  });

  it("is stored every 10 s, so that a killed hub loses what was called since", async () => {
    await inFolder(async (folder) => {
      const storage = diskQuotas(folder, "m");
      let updated = Promise.withResolvers<void>();
      const watched: QuotaStorage = {
        ...storage,
        update: async (change) => {
          await storage.update(change);
          updated.resolve();
        },
      };
      const killed = await open({ storage: watched });
      await killed.callOften(2);
      killed.clock.advanceTo(10 * SECOND);
      await updated.promise;
      updated = Promise.withResolvers();
      await killed.callOften(1);
      // It is never closed.
      assert.deepEqual(
        Object.values(storedIn(folder)).map(({ used }) => used),
        [2],
      );
      const next = await open({ storage });
      await next.callOften(1);
      assert.equal(next.used(), 3);
      await next.hub.close();
    });
  });

  it("of several hubs adds up", async () => {
    const storage = sharedStorage();
    const [one, two] = [await open({ count: 10, storage }), await open({ count: 10, storage })];
    for (let round = 1; round <= 2; round++) {
      await one.callOften(2);
      await two.callOften(1);
      for (const hub of [one, two, one]) await hub.clock.advanceAsync(10 * SECOND);
    }
    assert.deepEqual([one.used(), two.used()], [6, 6]);
    await Promise.all([one.callOften(3), two.callOften(1)]);
    for (const hub of [one, two, one]) await hub.clock.advanceAsync(10 * SECOND);
    assert.deepEqual([await one.callOften(1), await two.callOften(1)], [[true], [true]]);
    await Promise.all([one.hub.close(), two.hub.close()]);
    assert.match(storage.text ?? "", /"used": 10/);
  });

  it("of several hubs adds up in 30 days that begin with different first calls", async () => {
    const storage = sharedStorage();
    const one = await open({ count: 10, per: 30 * DAY, storage });
    const two = await open({ count: 10, per: 30 * DAY, storage, time: { offset: 7 * SECOND } });
    await one.callOften(2);
    await two.callOften(3);
    for (const hub of [one, two, one]) await hub.clock.advanceAsync(10 * SECOND);
    assert.deepEqual([one.used(), two.used()], [5, 5]);
  });

  it("is neither given back nor refused for long when the clock is set a day ahead or back", async () => {
    for (const per of [HOUR, DAY, 30 * DAY]) {
      const time = { offset: 0 };
      const storage = sharedStorage();
      const { callOften, call, clock, hub } = await open({ count: 2, per, storage, time });
      assert.deepEqual(await callOften(3), [false, false, true]);
      time.offset = -DAY;
      assert.equal(isRefused(await call()), true, "set back");
      const wait = Number(retryAfter(await call()));
      assert.ok(wait <= 2 * per, `${wait}`);
      time.offset = 0;
      // A window of an hour has moved by a day meanwhile, and is over.
      if (per === HOUR) continue;
      assert.equal(isRefused(await call()), true, "and ahead again");
      time.offset = DAY;
      assert.equal(isRefused(await call()), per === 30 * DAY, "set ahead");
      await clock.advanceAsync(10 * SECOND);
      time.offset = 0;
      assert.deepEqual(
        await callOften(3),
        per === 30 * DAY ? [true, true, true] : [false, true, true],
      );
      await hub.close();
      // The same after a restart.
      const next = await open({ count: 2, per, storage, time });
      assert.equal(isRefused(await next.call()), true);
      await next.hub.close();
    }
  });

  it("counts on in memory when its file cannot be stored, with one warning, and is stored when it can be", async () => {
    const shared = sharedStorage();
    let isBroken = true;
    const storage: QuotaStorage = {
      ...shared,
      update: (change) =>
        isBroken ? Promise.reject(new Error("disk full")) : shared.update(change),
    };
    const { callOften, clock, events } = await open({ count: 3, storage });
    assert.deepEqual(await callOften(2), [false, false]);
    for (let n = 0; n < 3; n++) await clock.advanceAsync(10 * SECOND);
    const warnings = events.filter((event) => event.kind === "log" && event.level === "warn");
    assert.equal(warnings.length, 1);
    assert.deepEqual(await callOften(2), [false, true]);
    isBroken = false;
    await clock.advanceAsync(10 * SECOND);
    assert.match(shared.text ?? "", /"used": 3/);
  });

  it("starts anew with a file that is damaged", async () => {
    for (const text of [
      "",
      "{",
      "[]",
      '{"version":2}',
      '{"version":1,"quotas":{"m x":{"start":"1"}}}',
    ]) {
      await inFolder(async (folder) => {
        writeFileSync(join(folder, "quotas.json"), text);
        const { callOften, hub } = await open({ count: 1, storage: diskQuotas(folder, "m") });
        assert.deepEqual(await callOften(2), [false, true]);
        await hub.close();
        assert.deepEqual(
          Object.values(storedIn(folder)).map(({ used }) => used),
          [1],
        );
      });
    }
  });

  it("holds a call until the stored calls are known, and lets it be cancelled meanwhile", async () => {
    const shared = sharedStorage();
    const read = Promise.withResolvers<void>();
    const storage: QuotaStorage = { ...shared, read: () => read.promise.then(() => undefined) };
    const { ci, hub, call } = await open({ storage });
    const answer = call();
    await turn();
    assert.deepEqual(
      hub.snapshot().calls.map(({ waitingFor }) => waitingFor),
      ["queue"],
    );
    ci.send({ jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "a__x" } });
    ci.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 9 } });
    await turn();
    read.resolve();
    assert.equal(isRefused(await answer), false);
    assert.equal(ci.messages.filter(({ id }) => id === 9).length, 0);
  });
});
