//! Memory windows of `udapl::aio`.

use udapl::aio::{Context, Options, block_on, try_join};
use udapl::{Access, DtoStatus, Error};

#[test]
fn a_window_whose_connection_has_ended_is_closed_by_its_drop() -> Result<(), Error> {
    let options = Options::default();
    block_on(async {
        let context = Context::open("softrxe-lo")?;
        let mut listener = context.listen(None, options.clone())?;
        let (address, qualifier) = (context.address(), listener.conn_qual());
        let attempt = context.connect(address, qualifier, &options);
        let (gone, by) = try_join(attempt, listener.accept()).await?;
        let attempt = context.connect(address, qualifier, &options);
        let (other, _accepted) = try_join(attempt, listener.accept()).await?;

        let region = context.pz().allocate(8, Access::ALL)?;
        region.write(0, b"contents");
        let part = region.part(0..8);
        let (window, bound) = by.bind(context.window()?, part, Access::REMOTE_READ).await;
        let remote = bound?;
        gone.disconnect().await?;
        by.closed().await;

        let (window, closed) = by.unbind(window).await;
        let flushed = matches!(
            closed,
            Err(Error::Failed {
                status: DtoStatus::Flushed,
                ..
            })
        );
        assert!(flushed, "{closed:?}");
        assert_eq!(window.remote(), Some(remote));
        let buffer = context.pool(1, 8)?.take().await;
        let (buffer, read) = other.read(remote, buffer).await;
        assert_eq!((read?, &buffer[..]), (8, &b"contents"[..]));

        drop(window);
        let read = other.read(remote, buffer).await.1;
        let refused = matches!(
            read,
            Err(Error::Failed {
                status: DtoStatus::RemoteAccess,
                ..
            })
        );
        assert!(refused, "{read:?}");
        Ok(())
    })
}
