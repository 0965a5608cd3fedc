import { HubError } from "../../errors.ts";
import type { Link } from "../link.ts";
import type { HttpTarget } from "./target.ts";

/** A server over HTTP as a Link. */
export function httpLink({ server }: HttpTarget): Link {
  throw new HubError("notSupported", "There are no links over HTTP yet.", { server });
}
