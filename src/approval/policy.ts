import { HubError } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";
import { mostExactGlob } from "../catalog/names.ts";
import { type Request, paramsOf } from "../jsonrpc/message.ts";
import {
  APPROVAL_DEFAULTS,
  type ApprovalDefaults,
  type ApprovalLevel,
  type RunnableServer,
} from "../manifest/manifest.ts";

/** An agent of toolmux that makes a call. */
export interface AgentCaller {
  readonly name: string;
  /** The setting in the agent's table (`[agents.NAME] approval`); undefined: it has none. */
  readonly approval?: ApprovalLevel | undefined;
  /** The level that applies if the manifest sets none, such as the value of `run --approval`; undefined: `auto`. */
  readonly fallback?: ApprovalLevel | undefined;
  /** Whether a person has to allow this call, whatever the settings say and whatever was allowed before. */
  readonly everyCall?: boolean | undefined;
}

/** A minimum level from the command line or a client's token. It can only raise the levels of the manifest. */
export type MinimumApproval = "auto" | "always" | "all";

export interface ApprovalSettings extends ApprovalDefaults {
  /**
   * `auto` and `always` raise the levels of servers and defaults; `all` asks for every call, whatever the rules for
   * tools say. Undefined: nothing is raised.
   */
  readonly raised?: MinimumApproval | undefined;
  /** The levels in `[[clients]]`, by the client's name. They raise the levels for the calls of that client. */
  readonly clients?: ReadonlyMap<string, ApprovalLevel> | undefined;
}

export const NO_APPROVALS: ApprovalSettings = APPROVAL_DEFAULTS;

/** A level, and the setting that it comes from, in words. */
export interface ApprovalRule {
  readonly level: ApprovalLevel;
  readonly setting: string;
  /** Whether `tools.approval` has a rule for the tool. */
  readonly isForTool: boolean;
  /** Whether the decision counts for this call only. */
  readonly isForCall?: boolean;
}

const SEVERITY: Readonly<Record<ApprovalLevel, number>> = { never: 0, auto: 1, always: 2 };

/** Whether any call of a client may need an approval with these settings. */
export function mayNeedApproval(
  { approval = "never", raised, clients = new Map() }: ApprovalSettings,
  specs: readonly Pick<RunnableServer, "approval" | "tools">[],
): boolean {
  const asks = (level: ApprovalLevel | undefined): boolean =>
    level !== undefined && level !== "never";
  return (
    raised !== undefined ||
    asks(approval) ||
    [...clients.values()].some(asks) ||
    specs.some((spec) => asks(spec.approval) || Object.values(spec.tools.approval ?? {}).some(asks))
  );
}

/**
 * The rule for calls of a tool. The most specific setting counts: the tool's, the agent's, the server's, the default.
 * @param tool the server's own name
 * @param agent undefined if a client makes the call
 * @param principal the name of the client in `[[clients]]`, if it has one
 */
export function approvalRuleOf(
  { name: server, approval: ofServer, tools }: Pick<RunnableServer, "name" | "approval" | "tools">,
  tool: string,
  settings: ApprovalSettings,
  agent: AgentCaller | undefined,
  principal?: string,
): ApprovalRule {
  if (agent?.everyCall === true) {
    const setting = `the file of agent "${agent.name}"`;
    return { level: "always", setting, isForTool: false, isForCall: true };
  }
  const ofTool = toolLevelOf(tools.approval, tool);
  const rule = (level: ApprovalLevel, setting: string): ApprovalRule => ({
    level,
    setting,
    isForTool: ofTool !== undefined,
  });
  const ofDefaults = agent === undefined ? settings.approval : settings.agentApproval;
  const written: ApprovalRule =
    ofTool !== undefined
      ? rule(ofTool.level, `tools.approval ${JSON.stringify(ofTool.key)} of server "${server}"`)
      : agent?.approval !== undefined
        ? rule(agent.approval, `approval of agent "${agent.name}"`)
        : ofServer !== undefined
          ? rule(ofServer, `approval of server "${server}"`)
          : agent === undefined
            ? rule(ofDefaults ?? "never", "defaults.approval")
            : rule(ofDefaults ?? agent.fallback ?? "auto", "defaults.agentApproval");
  const ofClient = principal === undefined ? undefined : settings.clients?.get(principal);
  const raised = raiseRule(written, settings.raised, "--approval");
  return raiseRule(raised, ofClient, `approval of client "${principal}"`);
}

/** Raises the level of a rule; a rule for a tool is only raised by `all`. @param setting the setting that raises it */
export function raiseRule(
  rule: ApprovalRule,
  raised: MinimumApproval | "never" | undefined,
  setting: string,
): ApprovalRule {
  if (raised === undefined || (rule.isForTool && raised !== "all")) return rule;
  const level = raised === "all" ? "always" : raised;
  return SEVERITY[level] > SEVERITY[rule.level] ? { ...rule, level, setting } : rule;
}

/** The most specific rule for a tool. */
function toolLevelOf(
  rules: Readonly<Record<string, ApprovalLevel>> | undefined,
  tool: string,
): { readonly key: string; readonly level: ApprovalLevel } | undefined {
  if (rules === undefined) return undefined;
  const key = mostExactGlob(Object.keys(rules), tool);
  const level = key === undefined ? undefined : rules[key];
  return key === undefined || level === undefined ? undefined : { key, level };
}

/** Key in the `_meta` of a call that an agent makes through the control socket. */
export const AGENT_META_KEY = "toolmux/agent";

/**
 * The agent that makes a call, from the request's `_meta`: `{name, approval?, fallback?, everyCall?}`; undefined:
 * none.
 * @throws {HubError} invalidParams
 */
export function readAgentCaller(request: Request): AgentCaller | undefined {
  const value = paramsOf(request).object("_meta").value(AGENT_META_KEY);
  if (value === undefined) return undefined;
  const { name, approval, fallback, everyCall } = isJsonObject(value) ? value : {};
  const isFlag = everyCall === undefined || typeof everyCall === "boolean";
  if (typeof name === "string" && isLevel(approval) && isLevel(fallback) && isFlag)
    return { name, approval, fallback, ...(everyCall === true && { everyCall }) };
  const text = `_meta "${AGENT_META_KEY}" must be {name, approval?, fallback?, everyCall?}.`;
  throw new HubError("invalidParams", text);
}

function isLevel(value: unknown): value is ApprovalLevel | undefined {
  return value === undefined || (typeof value === "string" && Object.hasOwn(SEVERITY, value));
}
