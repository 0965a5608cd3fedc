import { checkService } from "../../operations/service.ts";
import type { HostContext } from "../context.ts";
import type { Finding } from "./findings.ts";

/** Checks that the installed service, if there is one, starts this toolmux. */
export async function checkInstalledService(context: HostContext): Promise<readonly Finding[]> {
  const fault = await checkService(context);
  if (fault === undefined) return [];
  const { file, text } = fault;
  const advice = "To correct it: toolmux service install, or toolmux service remove";
  return [{ code: "TM606", subject: file, text, advice }];
}
