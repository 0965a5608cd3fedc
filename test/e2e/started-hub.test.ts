import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { DashboardPage } from "../contract/dashboard.ts";
import { EXIT_LIMIT, executable, TEST_OPTIONS, withTestFolder } from "../harness/hub.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

describe("a hub that a dashboard has started", () => {
  it("ends with the dashboard, even if that is killed", TEST_OPTIONS, () =>
    withTestFolder({ servers: {} }, async ({ dir, env }) => {
      const dashboard = new RawClient(
        executable(),
        ["dashboard", "--port", "0", "--json"],
        dir,
        env,
      );
      const link = await dashboard.until(30_000, "the link", () =>
        dashboard.lines.map(({ text }) => /http:\S+#token=[\w-]+/.exec(text)?.[0]).find(Boolean),
      );
      const page = await DashboardPage.open(link);
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
