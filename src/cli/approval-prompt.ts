import { abortable } from "../base/clock.ts";
import { deferred } from "../base/deferred.ts";
import { HubError } from "../base/errors.ts";
import type { ApprovalDecision, ApprovalQuestion } from "../base/events.ts";
import { sanitizeLine, sanitizeLines } from "../terminal/log.ts";
import type { Hub } from "../hub/hub.ts";
import type { CommandContext } from "./command.ts";
import { type AskLine, withPrompt } from "./prompt.ts";

/** The decisions by the words that people type. */
const WORDS: ReadonlyMap<string, ApprovalDecision> = new Map([
  ["", "deny"],
  ["n", "deny"],
  ["no", "deny"],
  ["y", "once"],
  ["yes", "once"],
  ["s", "session"],
  ["session", "session"],
  ["a", "always"],
  ["always", "always"],
]);

const LABELS: Readonly<Record<ApprovalDecision, string>> = {
  once: "[y]es",
  session: "[s]ession",
  always: "[a]lways",
  deny: "[N]o",
};

/** The question in which a person chooses one of these decisions. */
export function approvalQuestionFor(choices: readonly ApprovalDecision[]): string {
  return `Allow it? ${choices.map((choice) => LABELS[choice]).join(" ")}:`;
}

/** The decision that a typed line stands for; undefined if it is none of the choices. */
export function decisionOf(
  line: string,
  choices: readonly ApprovalDecision[],
): ApprovalDecision | undefined {
  const wish = WORDS.get(line.trim().toLowerCase());
  return choices.find((choice) => choice === wish);
}

export interface ApprovalPromptOptions {
  readonly ask: AskLine;
  print(text: string): void;
  /** Answers a question. @throws {HubError} if it is not needed any more */
  answer(question: ApprovalQuestion, decision: ApprovalDecision): Promise<void>;
}

/** Asks a person in the terminal to allow calls, one after the other. */
export class ApprovalPrompt {
  readonly #options: ApprovalPromptOptions;
  readonly #waiting = new Map<ApprovalQuestion["id"], ApprovalQuestion>();
  /** The ids of questions that are decided or withdrawn: what is known of them later is out of date. */
  readonly #over = new Set<string>();
  #shown: { readonly id: string; readonly abort: AbortController } | undefined;
  #changed = deferred();

  constructor(options: ApprovalPromptOptions) {
    this.#options = options;
  }

  /** Does nothing if the question is known. */
  add(question: ApprovalQuestion): void {
    if (this.#over.has(question.id)) return;
    this.#waiting.set(question.id, question);
    this.#changed.resolve();
    this.#changed = deferred();
  }

  /** The question is not needed any more. @param note says what became of it */
  remove(id: string, note: string): void {
    this.#over.add(id);
    this.#waiting.delete(id);
    if (this.#shown?.id === id) this.#shown.abort.abort(new HubError("cancelled", note));
  }

  /** Asks until the signal is aborted. @throws the signal's reason */
  async run(signal: AbortSignal): Promise<never> {
    for (;;) {
      signal.throwIfAborted();
      const [question] = this.#waiting.values();
      if (question === undefined) await abortable(this.#changed.promise, signal);
      else await this.#ask(question);
    }
  }

  async #ask(question: ApprovalQuestion): Promise<void> {
    const options = this.#options;
    const { id, name, choices } = question;
    const abort = new AbortController();
    this.#shown = { id, abort };
    options.print(describeQuestion(question));
    try {
      const askOptions = { signal: abort.signal, dropsTyped: true, failsAtEnd: true };
      let decision: ApprovalDecision | undefined;
      while (decision === undefined)
        decision = decisionOf(await options.ask(approvalQuestionFor(choices), askOptions), choices);
      this.#shown = undefined;
      await options.answer(question, decision);
      options.print(`${sanitizeLine(name)}: ${decision}`);
    } catch (error) {
      // A question that is withdrawn, or was decided by somebody else.
      if (!(error instanceof HubError) || (error.code === "cancelled" && !abort.signal.aborted))
        throw error;
      options.print(
        `${abort.signal.aborted ? "\n" : ""}${sanitizeLine(`${name}: ${error.message}`)}`,
      );
    } finally {
      this.#shown = undefined;
      this.#over.add(id);
      this.#waiting.delete(id);
    }
  }
}

/**
 * Runs `work`, and asks the person at this terminal about calls of a hub in this process that need an approval. Without
 * a terminal, and if no call needs one, only runs it.
 */
export async function withApprovalPrompt<T>(
  hub: Hub,
  { signal, terminal }: CommandContext,
  work: () => Promise<T>,
): Promise<T> {
  const { approvals } = hub;
  if (!approvals.isOn) return work();
  const done = await withPrompt(signal, async (ask) => {
    const prompt = new ApprovalPrompt({
      ask,
      print: (text) => terminal.printStderr(text),
      answer: ({ id }, decision) =>
        Promise.resolve(void approvals.answer(id, decision, "terminal")),
    });
    const unsubscribe = hub.subscribe(
      (event) => {
        if (event.kind !== "approval") return;
        if (event.change === "asked") prompt.add(event);
        else prompt.remove(event.id, "the call has ended");
      },
      ["approval"],
    );
    const endWatch = approvals.watch();
    const ended = new AbortController();
    prompt.run(AbortSignal.any([signal, ended.signal])).catch(() => {
      // Nobody is there any more who could allow a call.
      for (const { id } of approvals.questions) approvals.answer(id, "deny", "terminal");
    });
    try {
      return { value: await work() };
    } finally {
      ended.abort();
      endWatch();
      unsubscribe();
    }
  });
  return done === undefined ? work() : done.value;
}

/** The question for people, in several lines. */
export function describeQuestion(question: ApprovalQuestion): string {
  const { call, client, clientName, agent, server, name, argumentsShown, reason } = question;
  // A client's own name for itself proves nothing; its token does.
  const { principal } = question;
  const who = [
    agent === undefined ? "" : `agent ${agent} of `,
    principal ?? (clientName || client || "a client that cannot be told apart"),
  ].join("");
  return [
    "",
    sanitizeLine(`call ${call}: ${who} wants to run ${name} of server ${server}`),
    sanitizeLine(reason),
    sanitizeLines(argumentsShown),
  ].join("\n");
}
