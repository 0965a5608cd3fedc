import {
  type ByteRange,
  type Edit,
  joinPieces,
  piecesOfEdited,
  pieceSize,
} from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import { JsonObject, OPEN_BRACE } from "../../base/json.ts";
import type { CallingToolName, HubToolName } from "../../catalog/search/hub-tools.ts";
import {
  type CallableTools,
  type GivenCall,
  readGivenCall,
  unknownToolError,
} from "../../catalog/search/given-call.ts";
import { ToolNames } from "../../catalog/search/tool-names.ts";
import type { ListedRoute, Section } from "../../catalog/section.ts";
import { toolsForModels } from "../../catalog/tool-visibility.ts";
import { paramsOf, type Request } from "../../jsonrpc/message.ts";
import type { CallVia } from "../../router/call.ts";
import { refuseLookalikes } from "../../router/params.ts";

/** A call of `call_tool` as the call of the tool that it names. */
export interface NamedCall {
  /** The same request for the tool that the arguments name, with the arguments for it, byte for byte. */
  readonly request: Request;
  readonly via: CallVia;
}

/**
 * Turns a call of `call_tool` into the call of the tool that it names, before the request is routed: everything after
 * that treats it like any other call.
 * @throws {HubError} invalidParams
 */
export function readNamedCall(
  tool: CallingToolName,
  request: Request,
  callable: CallableTools,
): NamedCall {
  const params = paramsOf(request);
  refuseLookalikes(params, request.method);
  const outer = params.member("arguments");
  if (outer === undefined || request.bytes[outer.start] !== OPEN_BRACE)
    throw new HubError("invalidParams", `${tool} needs arguments: an object with a name.`);
  const given = readGivenCall(tool, JsonObject.at(request.bytes, outer), callable);
  const via = new HubToolCall(tool, given, callable.hubTools);
  return { request: withParams(request, params, given), via };
}

/** A call of a server's tool that was made by a tool of the hub. */
class HubToolCall implements CallVia {
  readonly tool: CallingToolName;
  readonly refusal: HubError | undefined;
  /** The name as the model wrote it. */
  readonly #name: string;
  readonly #hubTools: readonly HubToolName[];

  constructor(
    tool: CallingToolName,
    { name, refusal }: GivenCall,
    hubTools: readonly HubToolName[],
  ) {
    this.tool = tool;
    this.#name = name;
    this.refusal = refusal;
    this.#hubTools = hubTools;
  }

  #unknownError(tools: Section): HubError {
    return unknownToolError(this.#name, { tools, hubTools: this.#hubTools });
  }

  get isReadOnly(): boolean {
    return this.tool === "call_read_only_tool";
  }

  find(all: Section): ListedRoute | undefined {
    const tools = toolsForModels(all);
    const resolution = ToolNames.of(tools).resolve(this.#name);
    if (resolution.kind === "ambiguous") throw this.#unknownError(tools);
    return resolution.kind === "found" ? resolution.entry.route : undefined;
  }

  notFoundError(all: Section): HubError {
    return this.#unknownError(toolsForModels(all));
  }

  notReadOnlyError(name: string): HubError {
    return new HubError("notReadOnly", `"${name}" may change things: use call_tool.`);
  }
}

/**
 * A copy of a request `tools/call` for another tool, with other arguments. All its other bytes stay the same. The
 * arguments are copied without being scanned.
 */
function withParams(request: Request, params: JsonObject, { nameJson, args }: GivenCall): Request {
  const edits: Edit[] = [];
  for (const { key, start, end } of params.members) {
    if (key === "name") edits.push({ start, end, replacement: nameJson });
    else if (key === "arguments") edits.push({ start, end, replacement: args });
  }
  const bytes = joinPieces(piecesOfEdited({ ...request, edits }));
  /** The index in the copy of what begins or ends at this index in the request. */
  const moved = (at: number): number => {
    let index = at - request.start;
    for (const { start, end, replacement } of edits)
      if (start < at) index += pieceSize(replacement) - (end - start);
    return index;
  };
  const range = ({ start, end }: ByteRange): ByteRange => ({
    start: moved(start),
    end: moved(end),
  });
  const { kind, method, id, duplicateIds, params: paramsRange } = request;
  return {
    kind,
    method,
    bytes,
    start: 0,
    end: bytes.length,
    id: { key: id.key, bytes, ...range(id) },
    duplicateIds: duplicateIds.map(range),
    params: paramsRange && range(paramsRange),
    members: params.members.map((member) => ({ key: member.key, ...range(member) })),
  };
}
