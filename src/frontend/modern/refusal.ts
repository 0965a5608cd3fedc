import type { Piece } from "../../base/bytes.ts";
import type { HubError, RpcError } from "../../base/errors.ts";
import { buildError, type EncodedMessage } from "../../jsonrpc/message.ts";

const NO_RESOURCE = -32002;
const INVALID_PARAMS = -32602;

/** An error of the hub's own with the codes of the modern era: "resource not found" is invalid params there. */
function modernErrorOf(error: HubError): RpcError {
  const rpc = error.toRpc();
  return rpc.code === NO_RESOURCE ? { ...rpc, code: INVALID_PARAMS } : rpc;
}

export function buildModernError(id: Piece, error: HubError): EncodedMessage {
  return buildError(id, modernErrorOf(error));
}
