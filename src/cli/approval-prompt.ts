import { abortable } from "../base/clock.ts";
import { deferred } from "../base/deferred.ts";
import { HubError } from "../base/errors.ts";
import type { ApprovalDecision, ApprovalQuestion } from "../base/events.ts";
import { sanitizeLine, sanitizeLines } from "../terminal/log.ts";
import type { AskLine } from "./prompt.ts";

/** What a typed word stands for. Anything else denies the call. */
const WORDS: ReadonlyMap<string, ApprovalDecision> = new Map([
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
    const { ask, print, answer } = this.#options;
    const { id, name, choices } = question;
    const abort = new AbortController();
    this.#shown = { id, abort };
    print(describeQuestion(question));
    try {
      const labels = choices.map((choice) => LABELS[choice]).join(" ");
      const line = await ask(`Allow it? ${labels}:`, { signal: abort.signal, dropsTyped: true });
      const wish = WORDS.get(line.toLowerCase()) ?? "deny";
      const decision = choices.find((choice) => choice === wish) ?? "deny";
      this.#shown = undefined;
      await answer(question, decision);
      print(`${sanitizeLine(name)}: ${decision}`);
    } catch (error) {
      // A question that is withdrawn, or was decided by somebody else.
      if (!(error instanceof HubError) || (error.code === "cancelled" && !abort.signal.aborted))
        throw error;
      print(`${abort.signal.aborted ? "\n" : ""}${sanitizeLine(`${name}: ${error.message}`)}`);
    } finally {
      this.#shown = undefined;
      this.#over.add(id);
      this.#waiting.delete(id);
    }
  }
}

/** The question for people, in several lines. */
export function describeQuestion(question: ApprovalQuestion): string {
  const { call, client, clientName, agent, server, name, argumentsShown, reason } = question;
  const who = [
    agent === undefined ? "" : `agent ${agent} of `,
    clientName || client || "a client that cannot be told apart",
  ].join("");
  return [
    "",
    sanitizeLine(`call ${call}: ${who} wants to run ${name} of server ${server}`),
    sanitizeLine(reason),
    sanitizeLines(argumentsShown),
  ].join("\n");
}
