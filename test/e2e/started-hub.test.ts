import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { DashboardPage } from "../contract/dashboard.ts";
import {
  EXIT_LIMIT,
  executable,
  TEST_OPTIONS,
  type TestFolder,
  withTestFolder,
} from "../harness/hub.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

/** A page of a dashboard that was started in a folder. */
async function openDashboard({ dir, env }: TestFolder): Promise<[RawClient, DashboardPage]> {
  const dashboard = new RawClient(executable(), ["dashboard", "--port", "0", "--json"], dir, env);
  const link = await dashboard.until(30_000, "the link", () =>
    dashboard.lines.map(({ text }) => /http:\S+#token=[\w-]+/.exec(text)?.[0]).find(Boolean),
  );
  return [dashboard, await DashboardPage.open(link)];
}

describe("a hub that a dashboard has started", () => {
  it("starts beside that of another dashboard, though both want one port", TEST_OPTIONS, () =>
    withTestFolder({ servers: {} }, (one) =>
      withTestFolder({ servers: {} }, async (other) => {
        const opened = await Promise.all([one, other].map(openDashboard));
        const started = await Promise.all(
          opened.map(([, page]) => page.ask("hubs", { method: "POST" })),
        );
        const statuses = started.map(({ status }) => status);
        assert.deepEqual(statuses, [200, 200]);
        for (const [dashboard, page] of opened) {
          assert.equal((await page.hubs()).length, 1);
          dashboard.signal("SIGTERM");
          await dashboard.waitForExit(EXIT_LIMIT);
        }
      }),
    ),
  );

  it("ends with the dashboard, even if that is killed", TEST_OPTIONS, () =>
    withTestFolder({ servers: {} }, async (folder) => {
      const [dashboard, page] = await openDashboard(folder);
      assert.equal((await page.ask("hubs", { method: "POST" })).status, 200);
      const hubs = await page.hubs();
      assert.equal(hubs.length, 1);
      dashboard.signal("SIGKILL");
      await dashboard.waitForExit(EXIT_LIMIT);
      await poll(
        30_000,
        () => "the end of the hub",
        () => {
          try {
            process.kill(hubs[0]?.pid ?? NaN, 0);
            return undefined;
          } catch {
            return true;
          }
        },
      );
    }),
  );
});
