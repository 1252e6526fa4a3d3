/** Operators' pages of what serves and how well. */
export const servingRoutes = [] as const;
