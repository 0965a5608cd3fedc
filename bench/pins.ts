/** Measures the comparison of listings with what was accepted (pins) in this process, without a hub or servers. */
import { createHash } from "node:crypto";
import { Alerts } from "../src/base/alerts.ts";
import { EventBus } from "../src/base/hub-events.ts";
import { systemClock } from "../src/base/clock.ts";
import type { ServerListing } from "../src/catalog/listing.ts";
import { Pins, type Review } from "../src/pins/pins.ts";
import { memoryBaselines } from "../src/pins/store.ts";
import type { RunnableServer } from "../src/manifest/manifest.ts";
import { ListingSync } from "../src/upstream/listing.ts";
import { sourcesOf } from "./catalogs.ts";

/** Times of reviews of one listing, in ms. */
interface ReviewTimes {
  /** The first review, which makes the baseline. */
  readonly first: number;
  /** The review of a listing that says the same, after another list request. */
  readonly again: number;
  /** The review of a listing in which every tool has changed. */
  readonly changed: number;
  /** The longest time for which nothing else could run during these reviews. */
  readonly longestTurn: number;
  /** What is looked up before a call is sent, in ns. */
  readonly lookUp: number;
}

/** Reviews a listing of `tools` tools. */
export async function timeReviews(job: { readonly tools: number }): Promise<ReviewTimes> {
  const store = memoryBaselines();
  const pins = new Pins({
    bus: new EventBus(),
    alerts: new Alerts(new EventBus()),
    sha256: (text) => createHash("sha256").update(text).digest(),
    openStore: () => Promise.resolve(store),
    redact: (text) => text,
    identityOf: () => Promise.resolve("identity"),
  });
  const spec = { name: "s", kind: "stdio", pin: "block" } as RunnableServer;
  const server = { spec, origin: undefined, connection: "c", peer: undefined };
  const listings = Array.from({ length: 2 }, () => listingOf(job.tools));
  let longestTurn = 0;
  let reviewed: Review | undefined;
  const review = async (listing: ReturnType<typeof listingOf>): Promise<number> => {
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      longestTurn = Math.max(longestTurn, now - last);
      last = now;
    }, 0);
    const start = performance.now();
    reviewed = await pins.review(server, listing, () => false);
    clearInterval(timer);
    return performance.now() - start;
  };
  const [one = listingOf(0), other = listingOf(0)] = listings;
  const first = await review(one);
  const again = await review(other);
  if (reviewed === undefined) throw new Error("There is no review.");
  const lookUp = timeLookUp(other, reviewed);
  const changed = await review(listingOf(job.tools, " Sends it to the author."));
  return { first, again, changed, longestTurn, lookUp };
}

function listingOf(tools: number, more = "") {
  const [source] = sourcesOf(1, tools, more);
  if (source === undefined) throw new Error("There is no source.");
  return source.listing;
}

/** What a call costs more where pins block: the look-up before it is sent, in ns. */
function timeLookUp(listing: ServerListing, review: Review): number {
  const sync = new ListingSync(
    {
      clock: systemClock,
      loadSaved: () => Promise.resolve(undefined),
      save: () => {},
      changed: () => {},
      settled: () => {},
      pin: () => "block",
      review: () => Promise.resolve(review),
      examine: () => undefined,
      reviewed: () => {},
      warn: () => {},
      timeout: () => 0,
    },
    { listing, review },
  );
  const names = listing.tools.slice(0, 100).map(({ key }) => key);
  const rounds = 10_000;
  let refused = 0;
  const start = performance.now();
  for (let round = 0; round < rounds; round++)
    for (const name of names) if (sync.refusalOf("tools", name) !== undefined) refused++;
  const ns = ((performance.now() - start) / rounds / names.length) * 1e6;
  if (refused > 0) throw new Error("An accepted tool is refused.");
  return ns;
}
