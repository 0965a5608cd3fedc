/** Names of tools that compute something of their arguments, and need neither files nor a network. */
const COMPUTES =
  /^(?:add|sum|subtract|multiply|divide|modulo|power|sqrt|square_?root|factorial|average|mean|median|min|max|round|abs|calculate|calculator|calc|uppercase|lowercase|to_?upper(?:_?case)?|to_?lower(?:_?case)?|capitalize|reverse(?:_?(?:string|text))?|concat(?:enate)?|trim|slugify|count_?(?:words|characters|letters)|word_?count|echo|is_?prime|fibonacci|gcd|lcm|random_?number|roll_?dice|flip_?coin|convert_?(?:units?|temperature|length)|unit_?convert(?:er)?|celsius_?to_?fahrenheit|get_?fact_?of_?the_?day)$/i;
const REACHES =
  /~\/\.|\.ssh\b|id_rsa|\.env\b|\/etc\/|\b(?:posts?|uploads?|sends?|transmits?|forwards?) (?:\S{1,20} ){0,5}(?:to (?:\S{1,20} ){0,3}(?:external|remote|endpoint|server|analytics|webhook)|https?:)|\b(?:reads?|opens?|deletes?|writes?) (?:\S{1,20} ){0,3}(?:files?|director(?:y|ies)|environment variables|credentials|ssh keys?)\b|\b(?:runs?|executes?) (?:\S{1,20} ){0,2}(?:shell|commands?)\b/i;

/** Whether a tool whose name says that it computes something says that it reads files, or sends something away. */
export function isMismatched(entry: unknown, description: string): boolean {
  if (typeof entry !== "object" || entry === null || !("name" in entry)) return false;
  const { name } = entry;
  if (typeof name !== "string" || name.length > 60 || !COMPUTES.test(name)) return false;
  return REACHES.test(description.slice(0, 8192));
}
