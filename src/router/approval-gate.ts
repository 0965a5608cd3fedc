import { joinPieces, textOf } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type {
  ApprovalDecision,
  ApprovalPrompt,
  StateName,
  UnavailableDecisions,
} from "../base/hub-events.ts";
import { formatDuration } from "../base/format.ts";
import type { ServerListing } from "../catalog/listing.ts";
import type { ListedRoute } from "../catalog/section.ts";
import { escapeInvisible } from "../base/escape.ts";
import { headOf } from "../base/quote.ts";
import { paramsOf } from "../jsonrpc/message.ts";
import { DEFAULT_APPROVAL_WAIT, displayNameOf, type RunnableServer } from "../manifest/manifest.ts";
import { Method } from "../protocol/legacy.ts";
import type { Connection } from "../upstream/connection.ts";
import {
  type ApprovalOwner,
  type Approvals,
  type ApprovalSubject,
  type ApprovedServer,
  definitionOf,
  type PendingApproval,
  ownToolOf,
} from "../approval/approvals.ts";
import type { ApprovalRule } from "../approval/policy.ts";
import { formatShownArguments } from "../approval/shown-arguments.ts";
import type { Call, CallGate } from "./call.ts";
import { canElicit, Elicitation } from "./elicitation.ts";

/**
 * Delay before the hub also asks a modern client, in ms, if somebody watches the pending approvals. The delay gives the
 * watcher time to decide first, because asking a modern client ends the client's request.
 */
const MODERN_CLIENT_DELAY = 10_000;
/** Interval of progress notifications to the client while its call waits, in ms. */
const PROGRESS_INTERVAL = 10_000;
/** The messages of progress notifications: while somebody is asked, and while nobody is. */
const WAITING_TEXT = "Waiting for approval";
const UNWATCHED_TEXT = `${WAITING_TEXT}: nobody watches. Open the page (toolmux dashboard), or run toolmux approvals`;
/** Maximum length of the name of an agent in a prompt, in UTF-16 units. */
const MAX_AGENT_NAME = 64;

export interface ApprovalGateOptions {
  readonly approvals: Approvals;
  readonly rule: ApprovalRule;
  readonly route: ListedRoute;
  readonly connection: Connection;
  /** The client's name in the manifest (`[[clients]]`), if it has its own token there. */
  readonly principal: string | undefined;
  /** Whether several clients that the hub cannot tell apart may have sent the call. */
  readonly isAnonymous: boolean;
  readonly asks: ApprovalAsks;
  /**
   * The error for a tool that does not count as read-only, if only such tools may be called; undefined: any tool may be
   * called that is allowed.
   */
  readonly notReadOnlyError: HubError | undefined;
  /** Whether the call still has the plugins and the connection that it had when it arrived. */
  isCurrent(): boolean;
}

/** Who is asked by the forms that the calling client gets, and for whom pending approvals are counted. */
export interface ApprovalAsks {
  /**
   * `terminal`: the client is a command of toolmux, which asks in its terminal; `client`: the client itself answers. A
   * client can decide for itself alone, so its forms do not offer `always`; `none`: the client is not asked.
   */
  readonly form: "terminal" | "client" | "none";
  readonly owner: ApprovalOwner;
}

/** A call that is held, as far as its gate needs it. */
export type HeldCall = Pick<
  Call,
  | "number"
  | "request"
  | "route"
  | "token"
  | "caller"
  | "context"
  | "isOver"
  | "startedAt"
  | "setDeadlinePaused"
  | "refuse"
  | "fail"
>;

/**
 * Holds one call until it is decided whether the call may be made. An allowed call goes on as if it were never held.
 */
export class ApprovalGate implements CallGate {
  readonly isNotable = true;
  readonly #options: ApprovalGateOptions;
  readonly #spec: RunnableServer;
  readonly #server: ApprovedServer;
  #state: "new" | "held" | "over" = "new";
  #pending: PendingApproval | undefined;
  /** The state of the connection when the call arrived. */
  readonly #stateBefore: StateName;
  /** The server's listing when the call was allowed. */
  #listing: ServerListing | undefined;
  /** Whether the server listed the tool when the call arrived. If not, a plugin may have added the tool. */
  readonly #wasListed: boolean;

  constructor(options: ApprovalGateOptions) {
    this.#options = options;
    const { spec, origin } = options.connection;
    this.#spec = spec;
    this.#server = { spec, origin };
    this.#stateBefore = lastingStateOf(options.connection);
    this.#wasListed = this.#isListed(options.connection.listing) === true;
  }

  get waitingFor(): "approval" | undefined {
    return this.#state === "held" ? "approval" : undefined;
  }

  /** Holds the call until a decision, and pauses its deadline meanwhile. @param pass lets the call go on */
  hold(call: HeldCall, pass: () => void): void {
    this.#state = "held";
    call.setDeadlinePaused(true);
    const { deadlines } = call.context;
    const heldAt = deadlines.now();
    const release = (refusal: HubError | undefined): void => {
      this.#state = "over";
      call.caller.span?.addWait("approval", deadlines.now() - heldAt);
      call.setDeadlinePaused(false);
      if (call.isOver) return;
      if (refusal !== undefined) {
        call.refuse(refusal);
        return;
      }
      try {
        pass();
      } catch (error) {
        call.fail(toHubError(error));
      }
    };
    void this.#decide(call).then(release, (thrown: unknown) => {
      const { name } = call.route;
      const error = toHubError(thrown);
      const text = `Tool "${name}" was not called: the hub could not determine whether it may be called. ${error.message}`;
      release(error.code === "notApproved" ? error : new HubError("notApproved", text));
    });
  }

  /**
   * Checks the tool again when its server has a session. The server may have been started only for this call, and may
   * then list a changed tool of this name; or the server's specification may have changed.
   * @param connection the connection of the session
   * @param wasSent whether the call was already sent once, and its answer was lost or is not complete
   * @returns an error if the tool is not the one that was allowed
   */
  checkBeforeSend({ spec, listing }: Connection, wasSent: boolean): HubError | undefined {
    const { route } = this.#options;
    if (spec !== this.#spec) return this.#changedError(`Server "${route.server}"`, wasSent);
    if (this.#isRemoved(listing)) return this.#removedError(wasSent);
    if (listing === this.#listing) return undefined;
    const before = ownToolOf(route, this.#listing);
    const now = ownToolOf(route, listing);
    if (before === now || definitionOf(before) === definitionOf(now)) return undefined;
    return this.#changedError(`What server "${route.server}" says of the tool`, wasSent);
  }

  /** Whether the server lists the tool; undefined if its listing is not known. */
  #isListed(listing: ServerListing | undefined): boolean | undefined {
    const { remoteName } = this.#options.route;
    return listing?.tools.some(({ key }) => key === remoteName);
  }

  /** Whether the server has removed the tool since the call arrived. */
  #isRemoved(listing: ServerListing | undefined): boolean {
    return this.#wasListed && this.#isListed(listing) === false;
  }

  #removedError(wasSent = false): HubError {
    const { name, server } = this.#options.route;
    const text = `Server "${server}" has removed tool "${name}" since it was called, so it was not called${wasSent ? " a second time; the first time, it may have run" : ""}.`;
    return new HubError(wasSent ? "answerLost" : "notDelivered", text, { server });
  }

  #changedError(what: string, wasSent: boolean): HubError {
    const { name, server } = this.#options.route;
    const text = `${what} has changed since tool "${name}" was allowed, so it was not called${wasSent ? " a second time; the first time, it may have run" : ". Call it again"}.`;
    return new HubError(wasSent ? "answerLost" : "notDelivered", text, { server });
  }

  /** Withdraws the prompt, because the call has ended. */
  end(): void {
    this.#pending?.withdraw(undefined);
  }

  /** @returns the error if the call must not be made; undefined if it may be made, or has ended */
  async #decide(call: HeldCall): Promise<HubError | undefined> {
    const { approvals, rule, route, connection } = this.#options;
    this.#listing = connection.listing;
    const subject = await approvals.examine(route, this.#server, this.#listing);
    const { notReadOnlyError } = this.#options;
    if (subject.readOnly !== "yes" && notReadOnlyError !== undefined) return notReadOnlyError;
    if (rule.level === "never") return undefined;
    if (rule.level === "auto" && subject.readOnly === "yes") return undefined;
    const { client } = call.context;
    const remembered =
      rule.isForCall === true ? undefined : await approvals.rememberedFor(subject, client);
    if (call.isOver) return undefined;
    const prompt = this.#describe(call);
    if (remembered !== undefined) {
      approvals.reportRule(prompt, remembered);
      return this.#recheck(call, subject);
    }
    const canAskClient = this.#options.asks.form !== "none" && canElicit(call.caller.sender);
    const isUnwatched = approvals.watcherCount === 0;
    if (isUnwatched && !canAskClient && this.#waitFor(false) === 0) return this.#nobodyError(call);
    const { bytes } = call.request;
    const args = paramsOf(call.request)
      .all("arguments")
      .map(({ start, end }) => textOf(bytes, start, end));
    const open = approvals.ask(
      {
        ...prompt,
        argumentsShown: formatShownArguments(args.length === 0 ? ["{}"] : args, (text) =>
          approvals.redact(text),
        ),
        reason: this.#reasonOf(subject),
        ...this.#choicesFor(subject),
        subject,
        caller: client,
        owner: this.#options.asks.owner,
      },
      () => this.#checkStillValid(),
    );
    this.#pending = open;
    const stopAsking = this.#ask(call, open, canAskClient);
    const outcome = await open.outcome;
    stopAsking();
    if (outcome.kind === "withdrawn") return outcome.cause;
    const { decision, by } = outcome;
    if (decision !== "deny") return this.#recheck(call, subject);
    const { name, server } = route;
    const text =
      by === "timeout"
        ? `Nobody has decided within ${formatDuration(approvals.settings.timeout)} whether ${name} may be called, so it was not called. Do not repeat it without being asked to.`
        : `The person did not allow ${name}. Do not repeat it without being asked to.`;
    return new HubError("notApproved", text, { server });
  }

  /**
   * How long the call waits for a person who watches the pending approvals, in ms, while there is none.
   * @param canAskClient whether the client can be asked afterwards
   */
  #waitFor(canAskClient: boolean): number {
    const { isWatchable, settings } = this.#options.approvals;
    if (!isWatchable) return 0;
    const wait = this.#spec.approvalWait ?? settings.wait;
    return Math.min(settings.timeout, wait ?? (canAskClient ? 0 : DEFAULT_APPROVAL_WAIT));
  }

  /**
   * Asks the client, reports progress, and starts the timeout. While nobody watches the pending approvals, waits for
   * somebody first; then the client is asked, or the call is refused if it cannot be asked.
   * @returns a function that stops all of it
   */
  #ask(call: HeldCall, open: PendingApproval, canAskClient: boolean): () => void {
    const { approvals } = this.#options;
    const { clock, settings } = approvals;
    const by = this.#options.asks.form === "terminal" ? "terminal" : "client";
    let elicitation: Elicitation | undefined;
    /** Whether the hub has tried to ask the client, but could not. */
    let isRefused = false;
    let cancelDelay = (): void => {};
    const askNext = (): void => {
      cancelDelay();
      if (elicitation !== undefined && !isRefused) return;
      const canAsk = canAskClient && !isRefused;
      const isWatched = approvals.watcherCount > 0;
      if (isWatched && !canAsk) return;
      const isModern = call.context.client.era === "modern";
      const delay = isWatched ? (isModern ? MODERN_CLIENT_DELAY : 0) : this.#waitFor(canAsk);
      const act = canAsk ? askClient : () => open.withdraw(this.#nobodyError(call));
      if (delay === 0) act();
      else cancelDelay = clock.after(delay, act);
    };
    const askClient = (): void => {
      elicitation = new Elicitation(this.#spec, this.#formOf(open), "ownMessage");
      elicitation.send(call.caller);
      elicitation.result.then(
        (result) => {
          const wish = result.action === "accept" ? result.content["decision"] : "deny";
          const decision = this.#formChoices(open).find((choice) => choice === wish);
          open.decide(decision ?? "deny", by);
        },
        (thrown: unknown) => {
          const { code } = toHubError(thrown);
          if (code !== "notAsked") {
            open.decide("deny", by);
            return;
          }
          // The client cannot be asked, after all. A person who watches the pending approvals can still decide.
          isRefused = true;
          askNext();
        },
      );
    };
    open.onWatchChange = askNext;
    // This timer is started before that of the timeout, so that it ends first if both have the same time: a call that
    // nobody could decide is refused with the remedy.
    askNext();
    const cancelTimeout = clock.after(settings.timeout, () => open.decide("deny", "timeout"));
    const isAsked = (): boolean =>
      approvals.watcherCount > 0 || (elicitation !== undefined && !isRefused);
    const stopProgress = this.#reportProgress(call, isAsked);
    return () => {
      cancelTimeout();
      cancelDelay();
      stopProgress();
      const reason = "The approval is not needed any more.";
      elicitation?.withdraw(reason, new HubError("cancelled", reason));
    };
  }

  /**
   * Reports progress while the call waits: every 10 s, and at once if nobody is asked yet.
   * @param isAsked whether the client or somebody who watches is asked at present
   */
  #reportProgress({ token, caller }: HeldCall, isAsked: () => boolean): () => void {
    if (token === undefined) return () => {};
    const { clock } = this.#options.approvals;
    let count = 0;
    const report = (): void => {
      // Progress must only increase (MCP, progress), so this value is far below those that the server will report.
      const progress = ++count / 1e6;
      const start = `{"jsonrpc":"2.0","method":"${Method.progress}","params":{"progressToken":`;
      const message = isAsked() ? WAITING_TEXT : UNWATCHED_TEXT;
      const end = `,"progress":${progress},"message":${JSON.stringify(message)}}}`;
      caller.notify(joinPieces([start, token, end]));
      cancel = clock.after(PROGRESS_INTERVAL, report);
    };
    let cancel = (): void => {};
    if (isAsked()) cancel = clock.after(PROGRESS_INTERVAL, report);
    else report();
    return () => cancel();
  }

  /** Checks the server and the tool after the decision. @returns an error if one of them has changed meanwhile */
  async #recheck(call: HeldCall, subject: ApprovalSubject): Promise<HubError | undefined> {
    const { approvals, route, connection } = this.#options;
    const { name, server } = route;
    const error = this.#checkStillValid();
    if (error !== undefined) return error;
    this.#listing = connection.listing;
    const now = await approvals.examine(route, this.#server, this.#listing);
    if (now.definition === subject.definition || call.isOver) return undefined;
    const text = `Server "${server}" has changed tool "${name}" while it waited for an approval, so the tool was not called. Call it again.`;
    return new HubError("notDelivered", text, { server });
  }

  /** @returns an error if the server, its settings or the plugins have changed since the call arrived */
  #checkStillValid(): HubError | undefined {
    const { connection, route } = this.#options;
    const { name, server } = route;
    const isCurrent = connection.spec === this.#spec && this.#options.isCurrent();
    const state = lastingStateOf(connection);
    const pinError = isCurrent ? connection.pinError(route) : undefined;
    if (pinError !== undefined) return pinError;
    if (isCurrent && this.#isRemoved(connection.listing)) return this.#removedError();
    // A server does not count as ended if it is only idle, or if it had already ended when the call arrived: the call
    // itself will start it.
    const hasEnded = state !== this.#stateBefore && ENDED_STATES.includes(state);
    if (isCurrent && !hasEnded) return undefined;
    const what = isCurrent
      ? `Server "${server}" has ended`
      : `The settings of server "${server}" have changed`;
    const text = `${what} while tool "${name}" waited for an approval, so the tool was not called. Call it again.`;
    return new HubError("notDelivered", text, { server });
  }

  #describe(call: HeldCall) {
    const { route, caller, number, context } = call;
    const { agent, sender } = caller;
    const { principal } = this.#options;
    return {
      call: number,
      client: context.client.id,
      ...(principal !== undefined && { principal }),
      clientName: sender.info.name,
      // The name may come from a file that another person has written, so it is escaped.
      ...(agent !== undefined && { agent: headOf(escapeInvisible(agent.name), MAX_AGENT_NAME) }),
      server: route.server,
      tool: route.remoteName,
      name: route.name,
    };
  }

  /** The possible decisions, and why others are not possible. */
  #choicesFor({
    key,
    isDestructive,
    server,
    tool,
  }: ApprovalSubject): Pick<ApprovalPrompt, "choices" | "unavailable"> {
    const { isAnonymous, rule } = this.#options;
    if (rule.isForCall === true) {
      const why = `Each call has to be allowed (${rule.setting}).`;
      return { choices: ["once", "deny"], unavailable: { session: why, always: why } };
    }
    const mayRemember = !isDestructive || (rule.isForTool && rule.level === "auto");
    const unavailable: UnavailableDecisions = {
      ...(isAnonymous && {
        session: "This client cannot be told apart from others, so it has no session of its own.",
      }),
      ...(mayRemember
        ? key === undefined && {
            always: `toolmux could not recognize the tool later: a value that server "${server}" needs is missing, or the store of approvals cannot be used.`,
          }
        : {
            always: `The tool says that it may destroy something. If you trust it, set tools.approval = { ${JSON.stringify(tool)} = "auto" } for server "${server}".`,
          }),
    };
    const { session, always } = unavailable;
    return {
      choices: [
        "once",
        ...(session === undefined ? (["session"] as const) : []),
        ...(always === undefined ? (["always"] as const) : []),
        "deny",
      ],
      ...((session !== undefined || always !== undefined) && { unavailable }),
    };
  }

  #reasonOf({ readOnly }: ApprovalSubject): string {
    const { rule } = this.#options;
    if (rule.level === "always") return `Each call needs an approval (${rule.setting}).`;
    return readOnly === "changed"
      ? `The tool says that it only reads, but did not say so when it was first known. To accept that: toolmux approvals accept ${this.#spec.name}`
      : `This tool may change something (${rule.setting} = "auto").`;
  }

  /** The decisions that the form of the calling client offers. */
  #formChoices({ prompt: { choices } }: PendingApproval): readonly ApprovalDecision[] {
    const isOfPerson = this.#options.asks.form === "terminal";
    return isOfPerson ? choices : choices.filter((choice) => choice !== "always");
  }

  #formOf(open: PendingApproval) {
    const { name, agent, argumentsShown } = open.prompt;
    const choices = this.#formChoices(open);
    const who = agent === undefined ? "" : `Agent ${JSON.stringify(agent)} asks: `;
    const meanings = choices.map((choice) => CHOICE_MEANINGS[choice]).join("; ");
    return {
      message: `${who}Server "${displayNameOf(this.#spec)}" wants to run ${name} with:\n${argumentsShown}`,
      schema: {
        type: "object",
        properties: {
          decision: {
            type: "string",
            title: "Decision",
            description: meanings,
            enum: choices,
          },
        },
        required: ["decision"],
      },
    };
  }

  #nobodyError({ route: { name, remoteName, server } }: HeldCall): HubError {
    const { rule, approvals } = this.#options;
    const { howToBeAsked } = approvals;
    const start = `Tool "${name}" was not called: a person has to allow it`;
    if (rule.isForCall === true) {
      const advice = howToBeAsked === undefined ? "" : ` Ask the user to ${howToBeAsked}.`;
      const why = `${start} each time (${rule.setting}), and nobody can be asked.${advice}`;
      return new HubError("notApproved", why, { server });
    }
    const either = howToBeAsked === undefined ? "" : `${howToBeAsked}, then call it again; or to `;
    const text = `${start} (${rule.setting}: ${rule.level}), and nobody can be asked. Ask the user to ${either}set tools.approval = { ${JSON.stringify(remoteName)} = "never" } for server "${server}".`;
    return new HubError("notApproved", text, { server });
  }
}

/** The states of a connection whose server has ended for another reason than being idle. */
const ENDED_STATES: readonly StateName[] = ["reconnecting", "failed", "disconnected"];

/** The state of a connection; for a connection that is stopping, the state that will follow. */
function lastingStateOf({ state }: Connection): StateName {
  return state.at === "stopping" ? state.next.at : state.at;
}

const CHOICE_MEANINGS: Readonly<Record<ApprovalDecision, string>> = {
  once: "once: this call",
  session: "session: this tool, until the client leaves",
  always: "always: this tool, from now on",
  deny: "deny: do not call it",
};
