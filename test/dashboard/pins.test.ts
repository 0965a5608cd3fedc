import assert from "node:assert/strict";
import { it } from "node:test";
import type { PinsDocument } from "../../src/dashboard/page/documents.ts";
import { skipWithoutChromium } from "../harness/chromium.ts";
import { poll } from "../harness/wait.ts";
import { PageHub, serverDocument, sharedBrowser, show, withPage } from "./page-hub.ts";

const browser = sharedBrowser();
const OPTIONS = { skip: skipWithoutChromium, timeout: 240_000 };

const EVIL = `<img src=x onerror="window.hacked=1"></pre><script>window.hacked=1</script>\\u{200b}`;

function pinsDocument(...names: readonly string[]): PinsDocument {
  return {
    server: "a",
    pin: "block",
    compared: true,
    pending: names.map((name, at) => ({
      kind: "tool",
      name,
      digest: `digest-${at}`,
      reason: "changed",
      acceptedAt: 1,
      peerThen: "a 1",
      peerNow: "a 2",
      parts: [
        {
          part: "description",
          omitted: 0,
          changes: [{ path: "description", before: "Reads.", after: EVIL }],
        },
      ],
    })),
  };
}

it(
  "the page of a server shows what is not accepted as text, and accepts what the person has seen",
  OPTIONS,
  async () => {
    const hub = new PageHub({
      "GET /pins": { servers: [pinsDocument("read", EVIL)] },
      "POST /pins/accept": { accepted: [] },
    });
    hub.servers = [serverDocument("a", { pending: 2 })];
    await withPage(browser(), hub, async (page) => {
      await page.waitFor(`document.querySelector("[data-server] .badge.bad")`);
      assert.equal(
        await page.evaluate(`document.querySelector("[data-server] .badge.bad").textContent`),
        "2 not accepted",
      );
      await show(page, "servers/a");
      await page.waitFor(`document.querySelector("[aria-labelledby=pending] .diff ins")`);
      const texts = (await page.evaluate(
        `[...document.querySelectorAll("[aria-labelledby=pending] .diff")].map((it) => it.textContent)`,
      )) as readonly string[];
      assert.equal(texts.length, 2);
      for (const text of texts)
        assert.ok(text.includes(EVIL) && text.includes("- description: Reads."));
      assert.equal(
        await page.evaluate(`document.querySelectorAll(".diff img, .diff script").length`),
        0,
      );
      assert.equal(await page.evaluate(`window.hacked ?? 0`), 0);
      await page.evaluate(`document.querySelector("[aria-label='Accept read']").click()`);
      const accepted = await poll(
        10_000,
        () => "no request to accept",
        () => hub.requests.find(({ line }) => line.startsWith("POST /v1/pins/accept")),
      );
      assert.deepEqual(JSON.parse(accepted.body), {
        server: "a",
        definitions: [{ kind: "tool", name: "read", digest: "digest-0" }],
      });
      hub.documents["GET /pins"] = { servers: [pinsDocument()] };
      hub.emit({ kind: "pins", server: "a", pending: 0 });
      await page.waitFor(`!document.querySelector("[aria-labelledby=pending]")`);
    });
  },
);
