import assert from "node:assert/strict";
import { describe } from "node:test";
import { type BrowserPage, skipWithoutChromium, withBrowserPage } from "../harness/chromium.ts";
import {
  controlled,
  type ControlledServers,
  holdCall,
  withControlledServers,
} from "../harness/controlled-servers.ts";
import { EXIT_LIMIT, executable, itWith } from "../harness/hub.ts";
import { RawClient } from "../harness/raw-client.ts";

const LATE = { base: "1h", max: "1h", jitter: 0 };
const it = itWith({ skip: skipWithoutChromium, timeout: 120_000 });

/** Starts `toolmux dashboard` and opens its page. */
async function withDashboard(
  { dir, env }: ControlledServers,
  run: (page: BrowserPage) => Promise<void>,
): Promise<void> {
  const program = new RawClient(executable(), ["dashboard", "--port", "0", "--json"], dir, env);
  const link = await program.until(15_000, "the link", () =>
    program.lines.map(({ text }) => /http:\S+#token=[\w-]+/.exec(text)?.[0]).find(Boolean),
  );
  await withBrowserPage(async (page) => {
    await page.navigate(link);
    await page.waitFor(`document.querySelector(".link").textContent === "live"`);
    await run(page);
  });
  program.signal("SIGTERM");
  await program.waitForExit(EXIT_LIMIT);
}

const stateOf = (server: string): string =>
  `document.querySelector("[data-server=${server}]")?.dataset.state`;

describe("the page of a real hub", () => {
  it("does what its buttons say, and goes on with the next hub of the same manifest", () =>
    withControlledServers(
      { servers: { a: controlled(), broken: controlled({ reconnect: LATE }) } },
      async (servers) => {
        servers.setRules("broken", { start: "exit" });
        await servers.serve((client) =>
          withDashboard(servers, async (page) => {
            const press = async (label: string): Promise<void> => {
              const button = `[...document.querySelectorAll("button")].find((one) => (one.getAttribute("aria-label") ?? one.textContent) === ${JSON.stringify(label)})`;
              await page.waitFor(button);
              await page.evaluate(`${button}.click()`);
            };
            await client.initializeAndList();
            await page.waitFor(`${stateOf("a")} === "connected"`);
            await page.waitFor(`document.querySelector(".banner.bad")`);

            await press("Dismiss the alert of broken");
            await page.waitFor(`!document.querySelector(".banner.bad")`);

            servers.setRules("broken", {});
            await press("Retry broken");
            await page.waitFor(`${stateOf("broken")} === "connected"`);

            await press("Actions for a");
            await press("Disconnect");
            await page.waitFor(`${stateOf("a")} === "disconnected"`);
            servers.setRules("a", { start: "hang" });
            await press("Start a");
            await page.waitFor(`${stateOf("a")} === "connecting"`);
            await press("Cancel a");
            await page.waitFor(`!["connecting", "stopping"].includes(${stateOf("a")})`);
            servers.setRules("a", {});
            await press("Actions for a");
            await page.evaluate(`document.querySelector("[role=menuitem]").click()`);
            await page.waitFor(`${stateOf("a")} === "connected"`);

            const held = await holdCall(servers, client, "a");
            await page.evaluate(`location.hash = "#/calls"`);
            await press("Cancel hold");
            const { message } = await held.response();
            assert.equal(message.error?.code, -31005);
            await page.waitFor(
              `document.querySelector(".ended .outcome").textContent === "cancelled: operator"`,
            );

            await page.evaluate(`location.hash = "#/servers"`);
            client.signal("SIGKILL");
            await page.waitFor(`document.querySelector(".banner.busy")`);
            await servers.serve(async (next) => {
              await next.initializeAndList();
              await page.waitFor(
                `!document.querySelector(".banner.busy") && ${stateOf("a")} === "connected"`,
              );
            });
          }),
        );
      },
    ));
});
