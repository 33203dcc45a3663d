// The last hour of the fleet, minute by minute. Nothing here touches the page.

const MINUTE = 60_000, HOUR = 60;

/**
 * What was done in each of the last sixty minutes that are over, the last one last. The server tells those in which anything was done,
 * each when it is over, so one that is missing is a minute of nothing; the last may not have been told yet, and is left out then.
 */
export function minutesOf(told, now) {
  const known = new Map(told.map((each) => [Math.floor(Date.parse(each.at) / MINUTE), each])), last = Math.floor(now / MINUTE) - 1;
  const made = Array.from({ length: HOUR }, (_, nth) => known.get(last - HOUR + 1 + nth) ?? { steps: 0, ended: 0, failed: 0 });
  return known.has(last) || !known.has(last - 1) ? made : made.slice(0, -1);
}
