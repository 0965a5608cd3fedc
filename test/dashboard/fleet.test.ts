import assert from "node:assert/strict";
import { it } from "node:test";
import { skipWithoutChromium } from "../harness/chromium.ts";
import { fleetDocument, PageHub, sharedBrowser, show, withPage } from "./page-hub.ts";

const browser = sharedBrowser();
const OPTIONS = { skip: skipWithoutChromium, timeout: 240_000 };
const NAVIGATION = `document.querySelector("nav [href='#/fleet']")`;

/** The texts of the cells of a machine, or of a server of the fleet. */
const cellsOf = (attribute: string, name: string): string =>
  `[...(document.querySelector("[data-${attribute}='${name}']")?.querySelectorAll("[role=cell]") ?? [])].map((it) => it.textContent)`;

it(
  "the view Fleet is offered if the hub has a fleet, and follows its events",
  OPTIONS,
  async () => {
    const hub = new PageHub();
    await withPage(browser(), hub, async (page) => {
      assert.equal(await page.evaluate(`${NAVIGATION} === null`), true);
      // The manifest gets a table `fleet`.
      const fleet = fleetDocument("h1");
      hub.documents["GET /fleet"] = { ...fleet, machines: [], imported: [] };
      hub.emit({ kind: "manifest", outcome: "reloaded" });
      await page.waitFor(NAVIGATION);
      await show(page, "fleet");
      await page.waitFor(
        `document.querySelector(".empty h2").textContent.includes("No other machine")`,
      );
      hub.documents["GET /fleet"] = fleet;
      hub.emit({ kind: "fleet", change: "joined", machine: "h2", servers: ["a"] });
      await page.waitFor(`document.querySelector("[data-machine=h2]")`);
      const first = (await page.evaluate(cellsOf("machine", "h1"))) as readonly string[];
      assert.deepEqual(first.slice(1, 4), ["h1, a", "3", "0.4 ms"]);
      const second = (await page.evaluate(cellsOf("machine", "h2"))) as readonly string[];
      assert.ok(second[0]?.includes("It leaves.") && second[3] === "–", second.join());
      assert.equal(((await page.evaluate(cellsOf("imported", "a"))) as string[])[1], "h1, h2");
      assert.match(
        ((await page.evaluate(cellsOf("imported", "b"))) as string[])[1] ?? "",
        /No machine/,
      );

      const [machine] = fleet.machines;
      hub.documents["POST /fleet/ping"] = { ...fleet, machines: [{ ...machine, roundTrip: 7 }] };
      hub.documents["GET /fleet"] = hub.documents["POST /fleet/ping"];
      await page.evaluate(`document.querySelector("[aria-label='Ping all machines']").click()`);
      await page.waitFor(`${cellsOf("machine", "h1")}[3] === "7 ms"`);
      assert.ok(hub.requests.some(({ line }) => line === "POST /v1/fleet/ping"));

      const { connected: _, ...lost } = fleet;
      hub.documents["GET /fleet"] = { ...lost, error: "NATS does not answer." };
      hub.emit({ kind: "fleet", change: "left", machine: "h2", servers: ["a"] });
      await page.waitFor(
        `document.querySelector(".banner.bad")?.textContent.includes("NATS does not answer.")`,
      );
      assert.equal(
        await page.evaluate(`document.querySelector("[aria-label='Ping all machines']")`),
        null,
      );
    });
  },
);
