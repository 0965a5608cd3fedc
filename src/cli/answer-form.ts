import type { ApprovalDecision } from "../base/hub-events.ts";
import type {
  AnswerElicitation,
  ElicitationAnswer,
  ElicitationForm,
} from "../frontend/hub-client.ts";
import { isTable } from "../manifest/table.ts";
import { sanitizeLine, sanitizeLines } from "../terminal/log.ts";
import { approvalQuestionFor, decisionOf } from "./approval-prompter.ts";
import type { CommandContext } from "./command.ts";
import { describeChoices } from "./json-schema.ts";
import { type AskLine, hasTerminal, withPrompt } from "./prompt.ts";

/** Asks a question in the terminal. @returns the typed line; the promise rejects when the signal is aborted */
export type AskPerson = (question: string, signal: AbortSignal) => Promise<string>;

const DECISIONS: readonly ApprovalDecision[] = ["once", "session", "always", "deny"];

/**
 * Makes the function that answers elicitations (forms of servers, and approvals) by asking in the terminal, one after
 * the other.
 * @param print shows text to the person, before the questions
 */
export function answerInTerminal(
  print: (text: string) => Promise<void> | void,
  ask: AskPerson,
): AnswerElicitation {
  return oneByOne((form, signal) => answerForm(form, signal, print, ask));
}

async function answerForm(
  { message, schema }: ElicitationForm,
  signal: AbortSignal,
  print: (text: string) => Promise<void> | void,
  ask: AskPerson,
): Promise<ElicitationAnswer> {
  const properties = isTable(schema["properties"]) ? schema["properties"] : {};
  await print(sanitizeLines(message));
  const choices = decisionsOf(properties);
  if (choices !== undefined) {
    let decision: ApprovalDecision | undefined;
    while (decision === undefined)
      decision = decisionOf(await ask(approvalQuestionFor(choices), signal), choices);
    return { action: "accept", content: { decision } };
  }
  return askFields(properties, schema["required"], ask, signal);
}

/** Asks with `ask`. Only what is typed after the question is shown counts, and the end of the input is an error. */
export function askPersonWith(ask: AskLine): AskPerson {
  return (question, signal) => ask(question, { signal, dropsTyped: true, failsAtEnd: true });
}

/** Lets each elicitation wait until the one before is answered: a typed line answers the question that is shown. */
function oneByOne(answer: AnswerElicitation): AnswerElicitation {
  let last: Promise<unknown> = Promise.resolve();
  return (form, withdrawn) => {
    const answerNext = (): Promise<ElicitationAnswer> => {
      withdrawn.throwIfAborted();
      return answer(form, withdrawn);
    };
    const answered = last.then(answerNext, answerNext);
    last = answered;
    return answered;
  };
}

/**
 * Makes the function that answers elicitations on the terminal of a command that asks nothing else. The terminal is read
 * only while a question is open, so that other typed lines are left to the shell.
 * @param clear clears the status line before a question
 * @returns undefined without a terminal
 */
export function answerWhileCommandRuns(
  { terminal, signal }: Pick<CommandContext, "terminal" | "signal">,
  clear: () => void,
): AnswerElicitation | undefined {
  if (!hasTerminal()) return undefined;
  return oneByOne(async (form, withdrawn) => {
    clear();
    const askAll = (): Promise<ElicitationAnswer | undefined> =>
      withPrompt(signal, (ask) =>
        answerForm(form, withdrawn, (text) => terminal.printStderr(text), askPersonWith(ask)),
      );
    return (await terminal.withoutStatus(askAll)) ?? { action: "cancel" };
  });
}

/** The choices of a form that asks for an approval; undefined for any other form. */
function decisionsOf(
  properties: Readonly<Record<string, unknown>>,
): readonly ApprovalDecision[] | undefined {
  const { decision, ...others } = properties;
  const choices = isTable(decision) ? decision["enum"] : undefined;
  if (!Array.isArray(choices) || Object.keys(others).length > 0) return undefined;
  const known = DECISIONS.filter((name) => choices.includes(name));
  return known.length > 0 && known.length === choices.length ? known : undefined;
}

/**
 * Asks for each field. If the person enters an empty line, the field gets its default value. If it has none, the field
 * is left out if it is optional; if it is required, the form is declined.
 */
async function askFields(
  properties: Readonly<Record<string, unknown>>,
  required: unknown,
  ask: AskPerson,
  signal: AbortSignal,
): Promise<ElicitationAnswer> {
  const content: Record<string, unknown> = {};
  const isRequired = (name: string): boolean => Array.isArray(required) && required.includes(name);
  if (Object.keys(properties).length === 0) {
    const answer = await ask("[y]es [N]o", signal);
    return /^y(?:es)?$/i.test(answer.trim())
      ? { action: "accept", content }
      : { action: "decline" };
  }
  for (const [name, field] of Object.entries(properties)) {
    const shape = isTable(field) ? field : {};
    const question = describeField(name, shape, isRequired(name));
    for (;;) {
      const text = (await ask(question, signal)).trim();
      if (text === "") {
        const { default: preset } = shape;
        if (preset !== undefined) content[name] = preset;
        else if (isRequired(name)) return { action: "decline" };
        break;
      }
      const value = readField(text, shape);
      if (value === undefined) continue;
      content[name] = value;
      break;
    }
  }
  return { action: "accept", content };
}

function describeField(
  name: string,
  { title, description, enum: choices, type, default: preset }: Readonly<Record<string, unknown>>,
  isRequired: boolean,
): string {
  const label = typeof title === "string" ? title : name;
  const kind = Array.isArray(choices)
    ? describeChoices(choices, ", ", String)
    : type === "boolean"
      ? "yes, no"
      : type === "number" || type === "integer"
        ? "a number"
        : undefined;
  const empty =
    preset === undefined ? (isRequired ? undefined : "may be empty") : JSON.stringify(preset);
  const more = [kind, empty].filter((part) => part !== undefined).join("; ");
  const text = typeof description === "string" ? `: ${description}` : "";
  return sanitizeLine(`${label}${text}${more === "" ? "" : ` (${more})`}`);
}

/** Converts typed text to the value of a field; undefined if the text is not a valid value. */
function readField(
  text: string,
  { type, enum: choices }: Readonly<Record<string, unknown>>,
): unknown {
  if (Array.isArray(choices)) return choices.find((choice) => String(choice) === text);
  if (type === "boolean") {
    if (/^y(?:es)?$|^true$/i.test(text)) return true;
    return /^no?$|^false$/i.test(text) ? false : undefined;
  }
  if (type !== "number" && type !== "integer") return text;
  const number = Number(text);
  if (!Number.isFinite(number)) return undefined;
  return type === "number" || Number.isInteger(number) ? number : undefined;
}
