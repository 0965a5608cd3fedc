/**
 * An agent without a model, which does tasks by the tools of a hub: for each step it looks for a tool with the words of
 * the step and calls the right one, if it was found. What goes into the context of a model and comes out of it is
 * counted, with each exposure.
 */
import { Buffer } from "node:buffer";
import { estimateTokens } from "../src/catalog/search/signature.ts";
import { Peers, serversOf, specOf } from "./exposures.ts";
import type { Table } from "./report.ts";
import type { Question, QuestionSet, SetTool } from "./tool-sets.ts";

const EXPOSURES = ["direct", "search", "select"] as const;
type AgentExposure = (typeof EXPOSURES)[number];

/** Number of hits that are asked for. */
const LIMIT = 8;

/** The cost of a task: tokens that go into the context of the model and that the model writes, and its turns. */
class Tally {
  /** Tokens in the context before the first turn. */
  first = 0;
  in = 0;
  out = 0;
  /** Requests to the model: one for each tool call, and one for the answer. */
  turns = 0;
  /** Tokens that the model reads in all turns together. */
  read = 0;
  steps = 0;
  done = 0;

  /** A turn of the model, in which it reads the context and writes a call. @param context tokens in the context */
  turn(context: number, written: string): void {
    this.turns++;
    this.read += context;
    this.out += tokensOf(written);
  }
}

/** Does the tasks of a set with each exposure. @returns the means of the tasks, by exposure */
export async function runScriptedAgent({ tools, questions }: QuestionSet): Promise<Table> {
  const servers = serversOf(tools);
  const byId = new Map(tools.map((tool) => [tool.id, tool]));
  const tasks = [...Map.groupBy(questions, ({ task }) => task).values()];
  const rows: Record<string, Table[string]> = {};
  for (const exposure of EXPOSURES) {
    const tally = new Tally();
    for (const steps of tasks) await doTask(servers, steps, byId, exposure, tally);
    const mean = (sum: number): number => sum / tasks.length;
    rows[exposure] = {
      "before the first turn": mean(tally.first),
      in: mean(tally.in),
      out: mean(tally.out),
      turns: mean(tally.turns),
      "read in all turns": mean(tally.read),
      "steps done": tally.done / tally.steps,
      tasks: tasks.length,
    };
  }
  return rows;
}

async function doTask(
  servers: ReadonlyMap<string, readonly string[]>,
  steps: readonly Question[],
  byId: ReadonlyMap<string, SetTool>,
  exposure: AgentExposure,
  tally: Tally,
): Promise<void> {
  const peers = new Peers(servers, exposure);
  const { result } = JSON.parse(await peers.initialize()) as {
    readonly result: { readonly instructions?: string };
  };
  let list = await peers.request("tools/list", "{}");
  const first = tokensOf(result.instructions ?? "") + tokensOf(list);
  tally.first += first;
  let context = first;
  const call = async (name: string, args: object): Promise<unknown> => {
    const params = JSON.stringify({ name, arguments: args });
    tally.turn(context, params);
    const answer = JSON.parse(await peers.request("tools/call", params)) as {
      readonly result?: { readonly content?: unknown; readonly structuredContent?: unknown };
    };
    // Models get the text of a result.
    const came = tokensOf(JSON.stringify(answer.result?.content ?? answer));
    tally.in += came;
    context += came + tokensOf(params);
    return answer.result?.structuredContent;
  };
  for (const { text, right } of steps) {
    tally.steps++;
    const wanted = right.flatMap((id) => byId.get(id) ?? []).map(exposedNameOf);
    const [known] = wanted;
    if (known === undefined) continue;
    if (exposure === "direct") {
      await call(known, {});
      tally.done++;
      continue;
    }
    const query = text.slice(0, 500);
    const found =
      exposure === "search"
        ? namesIn(await call("search_tools", { query, limit: LIMIT }), "tools")
        : namesIn(await call("select_tools", { query, limit: LIMIT }), "selected");
    if (exposure === "select") {
      // The client puts the tools that were selected into the context.
      const before = tokensOf(list);
      list = await peers.request("tools/list", "{}");
      const more = tokensOf(list) - before;
      tally.in += more;
      context += more;
    }
    const name = found.find((each) => wanted.includes(each));
    if (name === undefined) continue;
    await (exposure === "search" ? call("call_tool", { name, arguments: {} }) : call(name, {}));
    tally.done++;
  }
  tally.turn(context, "");
  await peers.hub.close();
}

function exposedNameOf({ server, name }: SetTool): string {
  return `${specOf(server).prefix}__${name}`;
}

/** The names of the tools in an answer of `search_tools` or `select_tools`. */
function namesIn(answer: unknown, member: "tools" | "selected"): readonly string[] {
  const list = (answer as Readonly<Record<string, unknown>> | undefined)?.[member];
  if (!Array.isArray(list)) return [];
  return list.map((each: unknown) =>
    typeof each === "string" ? each : String((each as { readonly name: unknown }).name),
  );
}

function tokensOf(text: string): number {
  return estimateTokens(Buffer.byteLength(text));
}
