pub(crate) struct Server;
