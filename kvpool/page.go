package kvpool

// PageID names a physical page. It is the same on every rank of a worker.
type PageID int32

// NoPage stands where a group no longer needs a block's page.
const NoPage PageID = -1
