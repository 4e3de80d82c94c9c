package event

// AppendIdentity appends what makes e the event that it is, its source and its id
// with a NUL between them, to dst and returns the extended slice. Of valid events,
// only those with the same source and the same id get the same bytes, so a hash of
// them is a key for deduplication [PUB-3]. An event that is not of version 1.0 has
// no identity: dst is returned as it is.
func AppendIdentity(dst []byte, e Event) []byte {
	c, err := contextOf(e)
	if err != nil {
		return dst
	}
	if plain(&c.Source.URL) {
		dst = appendPlain(dst, &c.Source.URL)
	} else {
		dst = append(dst, c.Source.String()...)
	}
	dst = append(dst, 0)
	return append(dst, c.ID...)
}
