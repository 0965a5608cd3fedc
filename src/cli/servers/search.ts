import type { Listing, Offer } from "../../directory/listing.ts";
import { searchAll } from "../../directory/search.ts";
import { own } from "../console.ts";
import type { Invocation, World } from "../command.ts";
import { openLog } from "../open.ts";
import { usage } from "../parse.ts";
import { count, cut, findPaper, formatJson, type Paper } from "../print.ts";
import { clean } from "../report.ts";
import { openDirectories, tellFailures } from "./directories.ts";

const USUAL_LIMIT = 20;
const MAX_LIMIT = 200;

/** Looks for servers in directories. @returns 1 if nothing was found, 3 if none could be asked */
export async function search(invocation: Invocation, world: World): Promise<number> {
  const { words, json, values } = invocation;
  const limit = readLimit(values.get("limit")?.at(-1));
  const log = openLog(invocation);
  const directories = await openDirectories(invocation, world);
  const { listings, failures } = await searchAll(directories, words, limit, world.signal);
  tellFailures(failures, log);
  if (failures.length === directories.length) return 3;
  if (json !== false) own.log(formatJson({ servers: listings.map(toJson) }));
  else if (listings.length > 0) own.log(describe(listings, findPaper(world.env)));
  else log("warn", `nothing was found for ${words.join(" ")}`);
  return listings.length > 0 ? 0 : 1;
}

function readLimit(text: string | undefined): number {
  if (text === undefined) return USUAL_LIMIT;
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw usage(`--limit is a whole number from 1 to ${MAX_LIMIT}, not "${text}".`);
}

function describe(listings: readonly Listing[], { colors, width }: Paper): string {
  const blocks = listings.map((listing) => {
    const { name, version, directory, description, title, repository, homepage } = listing;
    const head = [name, version, `(${directory})`].filter((part) => part !== undefined);
    const about = [title === name ? undefined : title, description].filter(Boolean).join(": ");
    const place = repository ?? homepage;
    const lines = [about, listing.offers.map(describeOffer).join(", "), place ?? ""];
    const [first = "", ...others] = head;
    return [
      `${colors.bold(clean(first))} ${colors.dim(clean(others.join(" ")))}`,
      ...lines
        .filter((line) => line !== "")
        .map((line) => `  ${cut(clean(line).replaceAll("\n", " "), Math.max(20, width - 2))}`),
    ].join("\n");
  });
  const hint = `${count(listings.length, "server")}; to have one: toolmux add ${clean(listings[0]?.name ?? "NAME")}`;
  return [...blocks, colors.dim(hint)].join("\n");
}

/** What it is, in a word or two. */
export function describeOffer(offer: Offer): string {
  return offer.kind === "package" ? offer.name : offer.url;
}

function toJson({ offers, ...listing }: Listing): object {
  return {
    ...listing,
    offers: offers.map((offer) =>
      offer.kind === "package"
        ? { package: offer.name, env: offer.env.map(({ name }) => name) }
        : {
            url: offer.url,
            transport: offer.transport,
            headers: offer.headers.map(({ name }) => name),
          },
    ),
  };
}
