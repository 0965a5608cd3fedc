/** How many calls are allowed: the table `limits` of the hub, of a client and of a server, and `tools.limits`. */
import * as v from "valibot";
import {
  formatDuration,
  issuePath,
  MAX_DURATION,
  optionalKey,
  parseDuration,
  table,
} from "./fields.ts";
import { isTable } from "./table.ts";

/** A number of calls in a time; `per` in ms. */
export interface CallCount {
  readonly count: number;
  readonly per: number;
}

/** Maximum number of calls that a setting can have. */
const MAX_COUNT = 1_000_000_000;
const RATE = 'a number of calls, at least 1, and a duration, such as "60/1m" or "5/1s"';
const QUOTA = 'a number of calls, at least 1, and 1h, 1d or 30d, such as "5000/1d"';
const QUOTA_PERIODS: readonly number[] = [3_600_000, 86_400_000, 30 * 86_400_000];

/** Parses a text such as `60/1m`. @returns undefined if it is none */
export function parseCallCount(text: string): CallCount | undefined {
  const [, digits, duration] = /^\s*(\d{1,10})\s*\/\s*(\S.*)$/.exec(text) ?? [];
  const count = Number(digits);
  const per = duration === undefined ? undefined : parseDuration(duration);
  if (per === undefined || per < 1 || count < 1 || count > MAX_COUNT) return undefined;
  return { count, per };
}

/** The text of a number of calls in a time, as a manifest has it: `60/1m`. */
export function formatCallCount({ count, per }: CallCount): string {
  return `${count}/${formatDuration(per)}`;
}

function callCount(expected: string, isAllowed: (per: number) => boolean) {
  return v.pipe(
    v.string(expected),
    v.rawTransform(({ dataset: { value }, addIssue, NEVER }): CallCount => {
      const parsed = parseCallCount(value);
      if (parsed !== undefined && isAllowed(parsed.per)) return parsed;
      addIssue({ message: expected });
      return NEVER;
    }),
  );
}

function callNumber(least: number) {
  const expected = `a whole number, at least ${least}`;
  return v.pipe(
    v.number(expected),
    v.integer(expected),
    v.minValue(least, expected),
    v.maxValue(MAX_COUNT, `a whole number, at most ${MAX_COUNT}`),
  );
}

const rateEntries = {
  rate: optionalKey(
    callCount(RATE, (per) => per <= MAX_DURATION),
    {
      title: "Rate",
      shown: true,
      description:
        "How many calls are allowed in a time: a number and a duration. The time is not divided into parts: after burst calls at once, the next ones are allowed one after the other. What exceeds it is refused.",
      examples: ["60/1m", "5/1s"],
      pattern: String.raw`^\s*0*[1-9]\d*\s*/\s*\d+(\.\d+)? ?(ms|s|m|h|d)\s*$`,
    },
  ),
  burst: optionalKey(callNumber(1), {
    title: "Calls at once",
    shown: true,
    description: "How many calls of rate are allowed at once; by default the number of rate.",
    examples: [20],
  }),
  quota: optionalKey(
    callCount(QUOTA, (per) => QUOTA_PERIODS.includes(per)),
    {
      title: "Quota",
      shown: true,
      description:
        "How many calls are allowed in an hour or a day of UTC, or in the 30 days that begin with the first call. Kept across restarts; the calls of all hubs of the manifest add up. What exceeds it is refused.",
      examples: ["5000/1d", "100/1h", "20000/30d"],
      pattern: String.raw`^\s*0*[1-9]\d*\s*/\s*(1 ?h|1 ?d|30 ?d)\s*$`,
    },
  ),
  maxConcurrent: optionalKey(callNumber(1), {
    title: "Calls at a time",
    shown: true,
    description:
      "How many calls may be at servers at the same time. Others wait; clients take turns.",
    examples: [4, 200],
  }),
};

const queueEntries = {
  maxQueued: optionalKey(callNumber(0), {
    title: "Calls that wait",
    shown: true,
    description:
      "How many calls may wait because of maxConcurrent: by default 100 for a server, 32 of a client. What exceeds it is refused.",
    examples: [100, 0],
  }),
};

/** Adds the rule that `burst` needs `rate`. */
function withRules<const E extends v.ObjectEntries>(entries: E) {
  return v.pipe(
    table(entries),
    v.rawCheck(({ dataset: { value: limits }, addIssue }) => {
      if (!isTable(limits) || !("burst" in limits) || "rate" in limits) return;
      addIssue({ message: "needs the key rate, too", path: issuePath(limits, ["burst"], "key") });
    }),
  );
}

/** The limits of a client or a server. */
export const callLimits = withRules({ ...rateEntries, ...queueEntries });
/** The limits of tools of a server. */
export const toolCallLimits = withRules(rateEntries);

/** The keys of the table `limits` of the hub. */
export const hubLimitEntries = {
  ...rateEntries,
  client: optionalKey(callLimits, {
    title: "Limits of a client",
    shown: true,
    description:
      "The limits of each client that has none of its own in clients. Clients over HTTP without a name share them; a client on stdio has its own rate and no quota.",
    examples: [{ rate: "600/1m", maxConcurrent: 32 }],
  }),
};

export const makeHubLimits = () => withRules(hubLimitEntries);

export type CallLimitsInput = Readonly<v.InferOutput<typeof callLimits>>;
export type HubLimitsInput = Readonly<v.InferOutput<ReturnType<typeof makeHubLimits>>>;
