// Standardised numbers of a text in the user's unit.

/** Return the function from numbers to an answer, by the content of labels.json. */
export function regressor(space) {
  const means = space.means ?? [space.mean];
  const deviations = space.deviations ?? [space.deviation];
  return (numbers) => {
    const values = Array.from(numbers, (number, k) => number * deviations[k] + means[k]);
    if (!space.means) return { value: values[0], score: values[0] };
    return { value: values, score: values.reduce((a, b) => a + b, 0) / values.length };
  };
}
