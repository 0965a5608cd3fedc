import process from "node:process";
import { HttpClient, type Message } from "../../bench/http/client.ts";

/** What may be said to a request whose server was killed: at work, or at its start. */
const CLEAR = ["connectionLost", "handshakeFailed", "spawnFailed"];
/** Faults of which the text is kept. */
const EXAMPLES = 5;
/** Between two kills, and before a call is cancelled, in ms. */
const KILL_PAUSE = 400;
const CANCEL_PAUSE = 10;
/** ms within which whatever was asked has to be answered. */
const ANSWER_LIMIT = 15_000;
/** Requests of one client at a time. */
const LANES = 2;

const ERRANDS = ["echo", "steps", "echo", "cancel", "prompt", "echo", "resource", "list"] as const;
type Errand = (typeof ERRANDS)[number];

/** What is asked for over HTTP, while one server after the other is killed. */
export interface HttpMixture {
  /** The names of the servers, which run everything-server.ts. */
  readonly servers: readonly string[];
  readonly clients: number;
  /** How often a server is killed at least; more often until calls were lost and cancelled. */
  readonly kills: number;
}

export interface HttpMixtureResult {
  readonly kills: number;
  readonly requests: number;
  /** Requests that were answered by an error that names the server, and that were cancelled. */
  readonly errors: number;
  readonly cancelled: number;
  /** From a request to the end of its answer, at worst, in ms. */
  readonly slowest: number;
  /** Answers that are missing, too many, another's or unclear; the first of them as text. */
  readonly faults: number;
  readonly examples: readonly string[];
}

/** Many clients that ask for everything at once, while one server after the other is killed. */
export async function mix(url: URL, job: HttpMixture): Promise<HttpMixtureResult> {
  const load = new MixedLoad(url, job.servers);
  await load.awaitTools();
  await load.run(job.clients, job.kills);
  return load.result;
}

class MixedLoad {
  readonly #url: URL;
  readonly #servers: readonly string[];
  /** Who answered last for each server since it was killed. */
  readonly #pids = new Map<string, number>();
  #isOver = false;
  #kills = 0;
  #requests = 0;
  #errors = 0;
  #cancelled = 0;
  #slowest = 0;
  #faults = 0;
  readonly #examples: string[] = [];

  constructor(url: URL, servers: readonly string[]) {
    this.#url = url;
    this.#servers = servers;
  }

  get result(): HttpMixtureResult {
    return {
      kills: this.#kills,
      requests: this.#requests,
      errors: this.#errors,
      cancelled: this.#cancelled,
      slowest: this.#slowest,
      faults: this.#faults,
      examples: this.#examples,
    };
  }

  /** Waits until all servers are there. */
  async awaitTools(): Promise<void> {
    const visitor = await HttpClient.connect(this.#url);
    for (const end = performance.now() + ANSWER_LIMIT; ;) {
      const [message] = await visitor.ask("tools/list", {});
      if (this.#namesAll(message)) break;
      if (performance.now() > end) throw new Error(`tools are missing: ${JSON.stringify(message)}`);
    }
    visitor.close();
  }

  async run(clients: number, kills: number): Promise<void> {
    const visitors = await Promise.all(
      Array.from({ length: clients }, () => HttpClient.connect(this.#url)),
    );
    const killing = setInterval(() => {
      this.#isOver = this.#kills >= kills && this.#errors > 0 && this.#cancelled > 0;
      this.#kill();
    }, KILL_PAUSE);
    await Promise.all(
      visitors.flatMap((visitor, client) => {
        void this.#listen(visitor, client);
        return Array.from({ length: LANES }, (_, lane) => this.#shop(visitor, client, lane));
      }),
    );
    clearInterval(killing);
    for (const visitor of visitors) visitor.close();
  }

  /** Nothing that belongs to a request, or that asks for anything, may come on the stream of the session. */
  async #listen(visitor: HttpClient, client: number): Promise<void> {
    const hear = (message: Message): void => {
      const { id, method } = message;
      if (id === undefined && method?.endsWith("/list_changed") === true) return;
      this.#blame(`client ${client} was told ${JSON.stringify(message)}`);
    };
    await visitor.listen(hear).catch(() => {});
    if (!this.#isOver) this.#blame(`the stream of client ${client} has ended`);
  }

  async #shop(visitor: HttpClient, client: number, lane: number): Promise<void> {
    for (let at = client + lane; !this.#isOver; at++) {
      const server = this.#servers[at % this.#servers.length] ?? "";
      // Neither the servers nor the errands go in step with the other.
      const errand = ERRANDS[(at + Math.floor(at / this.#servers.length)) % ERRANDS.length];
      const id = visitor.nextId();
      const key = `${client}-${lane}-${id}`;
      this.#requests++;
      const what = `${errand} ${key} of ${server}`;
      const asked = performance.now();
      try {
        const messages = await soon(this.#send(visitor, errand ?? "echo", server, id, key));
        this.#judge(errand ?? "echo", server, id, key, messages, what);
      } catch (error) {
        this.#blame(`${what}: ${String(error)}`);
      }
      this.#slowest = Math.max(this.#slowest, performance.now() - asked);
    }
  }

  #send(
    visitor: HttpClient,
    errand: Errand,
    server: string,
    id: number,
    key: string,
  ): Promise<Message[]> {
    const call = (tool: string, more: object = {}) =>
      visitor.ask("tools/call", { name: `${server}__${tool}`, arguments: { key }, ...more }, id);
    switch (errand) {
      case "echo":
        return call("echo");
      // The ids of many clients are the same, and so are their tokens.
      case "steps":
        return call("steps", { _meta: { progressToken: id } });
      case "cancel": {
        // Again and again, as the first one can come in before the call.
        const cancelling = setInterval(() => {
          visitor.notify("notifications/cancelled", { requestId: id }).catch(() => {});
        }, CANCEL_PAUSE);
        return call("stuck").finally(() => clearInterval(cancelling));
      }
      case "prompt":
        return visitor.ask("prompts/get", { name: `${server}__say`, arguments: { key } }, id);
      case "resource":
        return visitor.ask("resources/read", { uri: `medley://${server}/page` }, id);
      case "list":
        return visitor.ask("tools/list", {}, id);
    }
  }

  #judge(
    errand: Errand,
    server: string,
    id: number,
    key: string,
    messages: readonly Message[],
    what: string,
  ): void {
    const all = JSON.stringify(messages);
    const answers = messages.filter((message) => message.method === undefined);
    const steps = messages.filter((message) => message.method !== undefined);
    const areOwn = steps.every(
      ({ method, params }) =>
        method === "notifications/progress" &&
        params?.["progressToken"] === id &&
        params["message"] === key,
    );
    const [answer] = answers;
    if (!areOwn) this.#blame(`${what} was told ${all}`);
    // What is cancelled is not answered, unless its server was killed before.
    if (errand === "cancel" && answers.length === 0) this.#cancelled++;
    else if (answers.length !== 1 || answer?.id !== id) this.#blame(`${what} got ${all}`);
    else if (answer.error !== undefined) {
      const { code = "", server: named } = answer.error.data ?? {};
      if (named === server && CLEAR.includes(code)) this.#errors++;
      else this.#blame(`${what} got ${all}`);
    } else if (isLostCall(answer.result, server)) {
      this.#errors++;
    } else if (errand === "list") {
      if (!this.#namesAll(answer)) this.#blame(`${what} got ${all}`);
    } else this.#check(errand, server, key, answer, what);
  }

  #check(errand: Errand, server: string, key: string, answer: Message, what: string): void {
    const text = JSON.stringify(answer.result);
    const [, name, pid = "", given] = /"text":"(\S+) (\d+) ([^"]*)"/.exec(text) ?? [];
    const isOwn = name === server && given === (errand === "resource" ? "" : key);
    if (isOwn) this.#pids.set(server, Number(pid));
    else this.#blame(`${what} got ${text}`);
  }

  #kill(): void {
    if (this.#isOver) return;
    // The one that was killed last comes last: a map keeps the order in which its keys came.
    const [server, pid] = this.#pids.entries().next().value ?? [];
    if (server === undefined || pid === undefined) return;
    this.#pids.delete(server);
    try {
      process.kill(pid, "SIGKILL");
      this.#kills++;
    } catch {
      // An answer of one that was killed before was read late.
    }
  }

  #namesAll(message: Message | undefined): boolean {
    const text = JSON.stringify(message?.result ?? {});
    return this.#servers.every((server) => text.includes(`"${server}__echo"`));
  }

  #blame(text: string): void {
    this.#faults++;
    if (this.#examples.length < EXAMPLES) this.#examples.push(text.slice(0, 400));
  }
}

async function soon<T>(answer: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("not answered")), ANSWER_LIMIT);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A call whose server has died is answered with a result that names the server. */
function isLostCall(result: Message["result"], server: string): boolean {
  const { "toolmux/error": code = "" } = (result?.["_meta"] ?? {}) as Record<string, string>;
  return CLEAR.includes(code) && JSON.stringify(result?.["content"]).includes(server);
}
