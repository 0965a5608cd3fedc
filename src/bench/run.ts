import { HubError } from "../base/errors.ts";
import { chooseTool } from "./choice.ts";
import { BenchTarget } from "./target.ts";
import { LevelRun } from "./level.ts";
import { machineInfo } from "./machine.ts";
import { divideExtent, type BenchPlan, ROUNDS } from "./plan.ts";
import type {
  BenchProgress,
  BenchResult,
  LevelResult,
  OverheadResult,
  SubjectResult,
} from "./result.ts";
import { makeCallTemplate, type CallTemplate } from "./template.ts";

/** What was found, as far as it went. */
export interface BenchOutcome {
  /** undefined: not one call was measured. */
  readonly result: BenchResult | undefined;
  /** Why it was broken off: the signal's reason, or what became of a subject; undefined: it was not. */
  readonly broken: HubError | undefined;
}

/** A subject that is being measured. */
interface Entrant {
  readonly contact: BenchTarget;
  readonly template: CallTemplate;
  readonly levels: LevelResult[];
}

/** So much of the arguments is repeated, in UTF-16 units. */
const LONGEST = 200;
/** A hub answers for servers that do not start; by themselves they say more. */
const ALONE =
  "The hub lists no tools: `toolmux doctor` says why of a manifest, and bench without --compare of a command.";

/** Measures what a plan says. Aborting the signal ends it; what there is by then is told. Never rejects for what a subject does. */
export async function measure(
  plan: BenchPlan,
  tell: (event: BenchProgress) => void,
  signal: AbortSignal,
): Promise<BenchOutcome> {
  const started = new Date().toISOString();
  const entrants: Entrant[] = [];
  let broken: HubError | undefined;
  try {
    await enter(plan, entrants, tell, signal);
    for (const concurrency of plan.levels) {
      await measureLevel(plan, entrants, concurrency, tell, signal);
    }
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    broken = error;
  } finally {
    await Promise.all(entrants.map(({ contact }) => contact.close()));
  }
  const [first] = entrants;
  if (first === undefined || first.levels.length === 0) return { result: undefined, broken };
  const { loop, extent, chaos, args } = plan;
  const result: BenchResult = {
    version: 1,
    machine: machineInfo(),
    started,
    load: {
      tool: first.template.tool,
      arguments: args.length > LONGEST ? `${args.slice(0, LONGEST)}…` : args,
      loop,
      extent,
      chaos,
    },
    subjects: entrants.map(describeEntrant),
    ...(plan.direct && { overhead: compare(entrants) }),
  };
  return { result, broken };
}

/** Meets all that is to be measured. */
async function enter(
  plan: BenchPlan,
  entrants: Entrant[],
  tell: (event: BenchProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  const add = async (subject: BenchPlan["subject"], named: string | undefined): Promise<string> => {
    tell({ kind: "starting", subject: subject.name });
    const contact = await BenchTarget.open(subject, plan.era, signal);
    try {
      const tool = await contact.find((tools) => {
        if (subject.kind === "hub" && tools.length === 0) throw new HubError("serverFailed", ALONE);
        return chooseTool(tools, named);
      });
      const isMarked = plan.chaos.cancelRate > 0 && subject.taps !== undefined;
      const template = makeCallTemplate(tool, plan.args, contact.era, isMarked);
      entrants.push({ contact, template, levels: [] });
      return tool.key;
    } catch (error) {
      await contact.close();
      throw error;
    }
  };
  const tool = await add(plan.subject, plan.tool);
  const direct = await plan.direct?.(tool);
  if (direct !== undefined) await add(direct.subject, direct.tool);
}

/** All subjects at one level, in turns, so that what else happens on the machine hits all of them. */
async function measureLevel(
  plan: BenchPlan,
  entrants: readonly Entrant[],
  concurrency: number,
  tell: (event: BenchProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  const levels = entrants.map((entrant) => {
    const { contact, template } = entrant;
    return { entrant, level: new LevelRun({ plan, contact, template, concurrency, tell }) };
  });
  const rounds = levels.length > 1 ? ROUNDS : 1;
  try {
    for (let round = 0; round < rounds; round++) {
      const extent = divideExtent(plan.extent, rounds, round);
      const warmUp = plan.warmUp && divideExtent(plan.warmUp, rounds, round);
      const turns = round % 2 === 0 ? levels : levels.toReversed();
      for (const { level } of turns) await level.run(extent, warmUp, signal);
    }
  } finally {
    for (const { entrant, level } of levels) {
      if (!level.hasBegun) continue;
      const result = await level.result();
      entrant.levels.push(result);
      tell({ kind: "level", subject: entrant.contact.subject.name, level: result });
    }
  }
}

function describeEntrant({ contact, levels }: Entrant): SubjectResult {
  const { subject, ready, tools } = contact;
  return { kind: subject.kind, name: subject.name, ready, tools: tools.length, levels };
}

/** What the first costs over the second. */
function compare([hub, server]: readonly Entrant[]): OverheadResult[] {
  return (hub?.levels ?? []).flatMap((level) => {
    const bare = server?.levels.find(({ concurrency }) => concurrency === level.concurrency);
    if (bare === undefined) return [];
    return [
      {
        concurrency: level.concurrency,
        p50: level.latency.p50 - bare.latency.p50,
        p99: level.latency.p99 - bare.latency.p99,
        rate: bare.rate > 0 ? level.rate / bare.rate : 0,
      },
    ];
  });
}
